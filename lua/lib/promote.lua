--- @include "lib/putback"
-- What waited, and is due now, goes where deliveries go that come back. A bounded piece at every call that reaps.
local MAX_PROMOTED = 256

-- Whether a subscription has that aside, because of that member of `later`. What failed always is; a queue's other messages
-- are, where somebody read them, unless a link did, which does not wait.
local function waits_so(sub, id, alone, sure)
  if alone or sure then
    return true
  end
  local aside = #redis.call('XPENDING', K_MESSAGES, sub, id, id, 1, LATER) == 1
  return aside and not redis.call('ZSCORE', K_LATER, sub .. '|' .. id)
end

local function promote_due()
  if not d.next_due or d.next_due > now_ms then
    return
  end
  if d.grows then
    redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- as in reap_leases: under OOM nothing is applied
  end
  local subs, back, members, dues = redis.call('HKEYS', K_SUBSCRIPTIONS), {}, {}, {}
  local most = math.max(1, math.floor(MAX_PROMOTED / math.max(1, #subs)))
  local due = redis.call('ZRANGEBYSCORE', K_LATER, '-inf', int(now_ms), 'WITHSCORES', 'LIMIT', 0, most)
  local sure = d.kind == 'queue' and redis.call('EXISTS', K_LINKS) == 0
  for i = 1, #due, 2 do
    local own, id = string.match(due[i], '^(.+)|(.+)$')
    id = id or due[i]
    for _, sub in ipairs(subs) do
      if (not own or own == sub) and waits_so(sub, id, own, sure) then
        back[sub] = back[sub] or {}
        table.insert(back[sub], id)
      end
    end
    members[#members + 1], dues[#dues + 1] = due[i], tonumber(due[i + 1])
  end
  redis.call('ZREM', K_LATER, unpack(members))
  note_dues('due', dues)
  note_next_due()
  for _, sub in ipairs(subs) do
    give_back(sub, back[sub] or {})
  end
end
