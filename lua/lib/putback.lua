--- @include "lib/expiry"
-- Give deliveries back for redelivery, before all that is new, or all of its key where keys take turns. A failed attempt is counted, a release is not.
local function put_back(sub, ids, failed)
  ids = unexpired(sub, ids)
  if #ids == 0 then
    return
  end
  local takes_turn = d.fair_by and sub == 'queue'
  local claim = { 'XCLAIM', K_MESSAGES, sub, takes_turn and IN_TURN or RETURNED, 0 }
  for i, id in ipairs(ids) do
    claim[5 + i] = id
  end
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
  if failed then
    for _, id in ipairs(ids) do
      redis.call('HINCRBY', K_REDELIVERED, sub .. '|' .. id, 1)
    end
  end
  if takes_turn then
    in_turn().back(ids)
  else
    d.returned = d.returned + #ids
  end
  wake_hungry(#ids)
end
