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

-- Of so many that are due first: by subscription what is to be delivered, and whether somebody had some of it before.
local function promoted_of(subs, most)
  local back, members, dues, again = {}, {}, {}, false
  local due = redis.call('ZRANGEBYSCORE', K_LATER, '-inf', '(' .. int(now_ms + 1), 'WITHSCORES', 'LIMIT', 0, most)
  local sure = d.kind == 'queue' and redis.call('EXISTS', K_LINKS) == 0
  for i = 1, #due, 2 do
    local own, id = string.match(due[i], '^(.+)|(.+)$')
    id, again = id or due[i], again or own ~= nil
    for _, sub in ipairs(subs) do
      if (not own or own == sub) and waits_so(sub, id, own, sure) then
        back[sub] = back[sub] or {}
        table.insert(back[sub], id)
      end
    end
    members[#members + 1], dues[#dues + 1] = due[i], math.floor(due[i + 1])
  end
  redis.call('ZREM', K_LATER, unpack(members))
  note_dues('due', dues)
  note_next_due()
  return back, again
end

-- One that fetches just now from a plain queue gets what is due straight: as many as it has room for beside what came back before.
local function promote_due()
  if not d.next_due or d.next_due > now_ms then
    return
  end
  if d.grows then
    redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- as in reap_leases: under OOM nothing is applied
  end
  local subs = redis.call('HKEYS', K_SUBSCRIPTIONS)
  local direct = (d.fetches or 0) > 0 and #subs == 1 and d.orphans == 0
  local most = direct and d.fetches - d.returned or math.floor(MAX_PROMOTED / math.max(1, #subs))
  local back, again = {}, false
  if most > 0 or not direct then
    back, again = promoted_of(subs, math.max(1, math.min(most, MAX_PROMOTED)))
  end
  if direct and d.next_due and d.next_due <= now_ms then
    wake_hungry(MAX_PROMOTED) -- there is more, for others
  end
  if direct and d.returned == 0 then -- what it does not take is given back after all
    d.promoted, d.promoted_again, back = put_in_order(back[subs[1]] or {}), again, {}
  end
  for _, sub in ipairs(subs) do
    give_back(sub, back[sub] or {})
  end
end
