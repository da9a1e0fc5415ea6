--- @include "lib/ledger"
-- The keys of a queue that delivers by priority: its bands, the highest first. The ledger has what comes to each, and goes from there.
local NO_KEY = '*' -- of messages without one: of the usual priority, where keys are those
local BY_PRIORITY = 'priority'
local known_bands

-- Of AMQP's priorities 9, 8, 7, 6, 5; then 4, which needs no word; then 3 and 2, 1 and 0. `places` has the place of each, from 0.
local function bands()
  if not known_bands then
    known_bands = { '0', '1', '2', '3', '4', NO_KEY, '6', '7', places = {} }
    for i, key in ipairs(known_bands) do
      known_bands.places[key] = i - 1
    end
  end
  return known_bands
end

-- Counts by band as the ledger has them; '-' for none.
local function counts_text(counts)
  local parts = {}
  for i, key in ipairs(bands()) do
    if (counts[key] or 0) > 0 then
      parts[#parts + 1] = int(i - 1) .. '=' .. int(counts[key])
    end
  end
  return #parts > 0 and table.concat(parts, '+') or '-'
end

local function note_filed(keys)
  if d.fair_by == BY_PRIORITY then
    local counts = {}
    for _, key in ipairs(keys) do
      counts[key] = (counts[key] or 0) + 1
    end
    note('filed', counts_text(counts))
  end
end

local function note_unfiled(count)
  if d.fair_by == BY_PRIORITY and count > 0 then
    note('unfiled', int(count))
  end
end
