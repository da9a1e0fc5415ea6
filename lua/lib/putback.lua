--- @include "lib/expiry"
-- Give deliveries back for redelivery, before all that is new. A failed attempt is counted, a release is not.
local function put_back(sub, ids, failed)
  ids = unexpired(sub, ids)
  if #ids == 0 then
    return
  end
  local claim = { 'XCLAIM', K_MESSAGES, sub, RETURNED, 0 }
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
  d.returned = d.returned + #ids
  wake_hungry(#ids)
end
