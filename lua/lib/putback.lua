--- @include "lib/expiry"
--- @include "lib/retry"
-- Give deliveries back for redelivery, before all that is new, or all of its key where keys take turns. A failed attempt is counted, a release is not.
local function give_back(sub, ids)
  if #ids == 0 then
    return
  end
  local takes_turn = d.fair_by and sub == 'queue'
  local claim = { 'XCLAIM', K_MESSAGES, sub, takes_turn and IN_TURN or RETURNED, 0 }
  for i, id in ipairs(ids) do
    claim[5 + i] = id
  end
  claim[#claim + 1] = 'JUSTID'
  ids = redis.call(unpack(claim)) -- of what is due, nobody may have read some yet
  if takes_turn then
    in_turn().back(ids)
  else
    d.returned = d.returned + #ids
  end
  wake_hungry(#ids, sub)
end

-- What is due, and was kept for a fetch that does not take it.
local function give_promoted_back(sub)
  local ids = d.promoted
  if ids then
    d.promoted = nil
    give_back(sub, ids)
  end
end

-- `after` has, by id, the ms that some of them are to wait.
local function put_back(sub, ids, failed, after)
  ids = unexpired(sub, ids)
  if #ids == 0 then
    return
  end
  local attempts
  if failed then
    attempts = {}
    for _, id in ipairs(ids) do
      attempts[id] = redis.call('HINCRBY', K_REDELIVERED, sub .. '|' .. id, 1)
    end
  end
  if d.next_due then
    ids = none_early(sub, ids)
  end
  if attempts or after then
    ids = none_to_retry(sub, ids, attempts, after or {})
  end
  give_back(sub, ids)
end
