--- @include "lib/append"
--- @include "lib/expiry"
--- @include "lib/spooled"
--- @enclose
-- A queue's message may come back from another consumer when a link has taken later ones. Under its old number the target
-- would skip it, so it gets a new one: it is appended again, and taken out where it was, in one call.
local function renumber_returned(sub, taken)
  local ids = {}
  for i, entry in ipairs(redis.call('XPENDING', K_MESSAGES, sub, '-', int(taken), MAX_MOVED, RETURNED)) do
    ids[i] = entry[1]
  end
  d.returned = d.returned - #ids
  for _, entry in ipairs(d.fair and redis.call('XPENDING', K_MESSAGES, sub, '-', int(taken), MAX_MOVED, IN_TURN) or {}) do
    ids[#ids + 1] = in_turn().forget(entry[1])
  end
  for _, id in ipairs(unexpired(sub, ids)) do
    local entry = redis.call('XRANGE', K_MESSAGES, id, id)[1]
    redis.call('XACK', K_MESSAGES, sub, id)
    if entry then
      local fields = {}
      for i = 1, #entry[2], 2 do
        fields[entry[2][i]] = entry[2][i + 1]
      end
      local failures = redis.call('HGET', K_REDELIVERED, sub .. '|' .. id)
      redis.call('XDEL', K_MESSAGES, id)
      redis.call('ZREM', K_EXPIRY, id)
      redis.call('HDEL', K_REDELIVERED, sub .. '|' .. id)
      d.message_seq = d.message_seq + 1
      local again = store(d.message_seq, fields.m, fields.x and tonumber(fields.x) - now_ms or 0, fields.h or '', size_of(id),
        fields.k)
      keep_longer(fields.m, d.message_seq)
      if failures then
        redis.call('HSET', K_REDELIVERED, sub .. '|' .. again, failures)
      end
    end
  end
  wake_hungry(#ids)
end
