--[[
  remove - delete a destination with everything in it, or only its messages; a bounded piece a call.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run                  the server's run id as the caller learnt it when it connected
  ARGV[2] what    'messages' or 'all'  'messages' purges, 'all' deletes the destination
  Returns {code, messages, bytes}; what this call freed
  Codes    OK, MORE (call again), UNKNOWN
]]
--- @include "lib/orphans"
local PIECE = 500

if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
if ARGV[2] == 'all' then
  wake_all('removed')
  redis.call('UNLINK', unpack(KEYS))
  return { 'OK', int(d.pending_messages), int(d.pending_bytes) }
end
-- What is purged out of a consumer's hands, or out of those that await redelivery, is no longer held there.
local function forget_deliveries(sub, ids)
  local waited = {}
  for _, entry in ipairs(redis.call('XPENDING', K_MESSAGES, sub, ids[1], ids[#ids], int(#ids))) do
    local c = read_consumer(entry[2])
    if c then
      c.settled, c.settled_b = c.settled + 1, c.settled_b + size_of(entry[1])
      save_consumer(entry[2], c)
    elseif entry[2] == RETURNED then
      d.returned = d.returned - 1
    elseif entry[2] == LATER then
      waited[#waited + 1] = sub .. '|' .. entry[1]
    end
  end
  forget_later(waited)
end

local ids, bytes, entries = {}, 0, redis.call('XRANGE', K_MESSAGES, '-', '+', 'COUNT', PIECE)
for i, entry in ipairs(entries) do
  ids[i] = entry[1]
  bytes = bytes + size_of(entry[1])
  redis.call('HDEL', K_REFS, string.match(entry[1], '^%d+'))
  cool(string.match(entry[1], '^%d+'))
end
if #ids > 0 then
  if d.fair then
    in_turn().unfile(entries)
  end
  redis.call('XDEL', K_MESSAGES, unpack(ids))
  redis.call('ZREM', K_EXPIRY, unpack(ids))
  forget_later(ids)
  for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do
    forget_deliveries(sub, ids)
    redis.call('XACK', K_MESSAGES, sub, unpack(ids))
  end
end
d.pending_bytes, d.pending_messages = d.pending_bytes - bytes, d.pending_messages - #ids
if d.pending_messages == 0 then
  d.largest_bytes = 0
  redis.call('DEL', K_REDELIVERED)
end
reap()
hand_over()
note('purge', int(bytes), int(#ids))
write_ledger('remove', '-', bytes, #ids, 0)
save_destination()
return { #ids == PIECE and 'MORE' or 'OK', int(#ids), int(bytes) }
