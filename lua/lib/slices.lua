--- @include "lib/keys"
-- Slices of a queue, a topic or a gate share its limit as members of a pool of their own, from the very call on that makes them so: what a
-- caller says of that pool, or does not say, counts for nothing. Their keys say whose slices they are.
local function share_slices(settings, kind)
  local whole = string.match(K_DESTINATION, '/(.-)%%%.%d+%%%.%d+}$')
  local of = redis.call('HGET', K_DESTINATION, 'of_slices')
  local before = tonumber(redis.call('HGET', K_DESTINATION, 'sliced') or 1)
  local most = math.max(before, tonumber(settings.sliced) or 1, tonumber(settings.slices) or 1, tonumber(settings.of_slices) or 1)
  settings.sliced, settings.slices_pool, settings.of_slices = nil, nil, nil
  if whole then
    settings.slices = nil
    settings.slices_pool = whole .. '%.0'
  elseif most > 1 then
    settings.sliced = string.format('%d', most) -- it never gets less: late callers may still send to any of them
    settings.slices_pool = string.match(K_DESTINATION, '/(.-)}$') .. '%.0'
  end
  if kind == 'limiter' then -- whose limits are of each key, and a key lies in one slice
    settings.slices_pool = nil
  end
  if settings.slices_pool then
    settings.of_slices = string.format('%d', math.max(most, tonumber(of) or 1))
  end
end
