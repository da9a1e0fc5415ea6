--- @include "lib/in_turn"
-- Which messages of a queue that delivers by priority go next, by counts of its bands alone.
local MOST_OVERTAKEN = 100 -- where the setting does not say

-- The band of the next message, and how many of it go one after the other. Each of the others may go before one that was
-- overtaken enough, once: it begins early enough for all of them.
local function next_band(waiting, most)
  local enough = (d.max_overtaken or MOST_OVERTAKEN) - #bands() + 1
  local due, first
  for _, band in ipairs(waiting) do
    if band.waiting > 0 then
      first = first or band
      if band.overtaken >= enough and (not due or band.overtaken > due.overtaken) then
        due = band
      end
      most = band == first and math.min(most, band.waiting) or math.min(most, enough - band.overtaken)
    end
  end
  return due or first, due and 1 or most
end

-- Says which go, band by band, and writes down what that leaves to the others.
local function plan(waiting, left)
  local runs = {}
  for _ = 1, left do
    local band, some = next_band(waiting, left)
    if not band or left == 0 then
      break
    end
    for _, other in ipairs(waiting) do
      other.overtaken = other ~= band and other.waiting > 0 and other.overtaken + some or 0
    end
    band.waiting, band.taken, left = band.waiting - some, band.taken + some, left - some
    runs[#runs + 1] = { band = band, some = some }
  end
  local add, gone = { 'ZADD', K_ROTA }, {}
  for _, band in ipairs(waiting) do
    if band.waiting > 0 then
      add[#add + 1], add[#add + 2] = int(band.overtaken), band.key
    else
      gone[#gone + 1] = band.key
    end
  end
  if #add > 2 then
    redis.call(unpack(add))
  end
  in_turn().leave(gone)
  return runs
end
