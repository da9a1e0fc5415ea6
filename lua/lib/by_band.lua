--- @include "lib/holding"
-- What waits, was admitted and was shed, by band: '<band> <waiting> <admitted> <shed>;...'. Of the usual band only what was shed
-- is kept: the rest is what the others leave of all. Nothing is read, nor written, where no band is named.
local by_band = {}

-- `what`: 1 waits, 2 was admitted, 3 was shed.
by_band.count = function(band, what, number)
  if band ~= USUAL or what == 3 then
    limiter.by_band = limiter.by_band or {}
    local change = limiter.by_band[band] or { 0, 0, 0 }
    change[what] = change[what] + number
    limiter.by_band[band] = change
  end
end

by_band.save = function()
  local changes, texts = limiter.by_band, {}
  if not changes then
    return
  end
  for band, waiting, admitted, shed in string.gmatch(redis.call('HGET', K_DESTINATION, 'by_band') or '', '(%d) (%d+) (%d+) (%d+)') do
    local change = changes[band + 0] or { 0, 0, 0 }
    changes[band + 0] = { change[1] + waiting, change[2] + admitted, change[3] + shed }
  end
  for band, counts in pairs(changes) do
    texts[#texts + 1] = string.format('%d %.0f %.0f %.0f', band, math.max(0, counts[1]), counts[2], counts[3])
  end
  redis.call('HSET', K_DESTINATION, 'by_band', table.concat(texts, ';'))
end
