--- @include "lib/band_plan"
-- What is next of a queue that delivers by priority: the highest band first, but for one that others overtook so often that it
-- goes before. In `rota` each band that waits has how many messages of others went since its own last, or since it waits.
local MAX_OTHERS = 64

-- Messages that have another key, from before keys were priorities, go to the band of those without one; a bounded piece a call.
local function move_others()
  local left = MAX_SORTED
  for _, key in ipairs(redis.call('ZRANGE', K_ROTA, 0, MAX_OTHERS - 1)) do
    if left > 0 and not bands().places[key] then
      local its = redis.call('ZRANGEBYLEX', K_FAIR, '[' .. key .. ' ', '(' .. key .. '!', 'LIMIT', 0, left)
      in_turn().rename(its)
      left = left - #its
      if left > 0 then
        in_turn().leave({ key })
      end
    end
  end
  d.more = true
end

-- Bands that wait, the highest first.
local function read_bands()
  local scores = redis.call('ZMSCORE', K_ROTA, unpack(bands()))
  local waiting, known = {}, 0
  for i, key in ipairs(bands()) do
    if scores[i] then
      known = known + 1
      local count = redis.call('ZLEXCOUNT', K_FAIR, '[' .. key .. ' ', '(' .. key .. '!')
      waiting[#waiting + 1] = { key = key, waiting = count, overtaken = scores[i] + 0, taken = 0 }
    end
  end
  return waiting, known
end

local function note_banded(before, runs)
  local parts = {}
  for i, run in ipairs(runs) do
    parts[i] = int(bands().places[run.band.key]) .. '=' .. int(run.some)
  end
  note('banded', int(d.max_overtaken or MOST_OVERTAKEN), before, table.concat(parts, '+'))
end

local function take_by_band(most)
  local waiting, known = read_bands()
  if redis.call('ZCARD', K_ROTA) > known then
    move_others()
    waiting = read_bands()
  end
  local counts, ids = {}, {}
  for _, band in ipairs(waiting) do
    counts[band.key] = band.waiting
  end
  local runs = plan(waiting, most)
  for _, band in ipairs(waiting) do
    if band.taken > 0 then
      band.its = redis.call('ZRANGEBYLEX', K_FAIR, '[' .. band.key .. ' ', '(' .. band.key .. '!', 'LIMIT', 0, int(band.taken))
      redis.call('ZREM', K_FAIR, unpack(band.its))
      band.taken = 0
    end
  end
  for _, run in ipairs(runs) do
    for _ = 1, run.some do
      run.band.taken = run.band.taken + 1
      ids[#ids + 1] = in_turn().id_in(run.band.its[run.band.taken])
    end
  end
  if #ids > 0 then
    note_banded(counts_text(counts), runs)
  end
  return ids
end
