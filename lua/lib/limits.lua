--- @include "lib/limiter_keys"
--- @include "lib/rate"
--- @include "lib/calendar"
-- Limits with names, and how much of each is taken. Taken of a rate is a `tat`, of what is held at once a count, of a quota a
-- count and the ms at which its window began. Texts have only what is not whole: an empty one means that nothing is taken.
local LIMIT = '([%w_]+) ([%w_]+) ([^ ;]+) ?([^ ;]*) ?([^ ;]*)'
local LEVEL = '([%w_]+)([=:])(%d+)@?(%d*)'
local AWAY = '^A%d+_(.+)$' -- what a key holds in another slice, where it was pinned before; it counts as held here
local limiter -- its settings, its clock, and its own levels
local pinned = {} -- what lib/pinned does

local function parse_limits(text)
  local limits, forms, adapts = {}, {}, nil
  for name, form, most, second, third in string.gmatch(text or '', LIMIT) do
    local limit = { name = name, form = form, most = tonumber(most) }
    if form == 'rate' then
      limit.rate, limit.most = limit.most, tonumber(second)
      limit.tolerance = math.min(math.ceil(limit.most * 1000000 / limit.rate), MOST_OWED_US)
    elseif form == 'quota' then
      limit.window, limit.minutes = second, tonumber(third)
    elseif third ~= '' then -- <name> at_once <ceiling> <floor> <how it adapts>
      limit.ceiling, limit.floor, limit.adapt, adapts = limit.most, tonumber(second), third, limit
    end
    limit.index = #limits + 1
    limits[limit.index], forms[name] = limit, limit
  end
  return limits, forms, adapts
end

local function parse_levels(text)
  local levels = { held = {}, tat = {}, used = {}, from = {} }
  for name, sign, value, from in string.gmatch(text or '', LEVEL) do
    if sign == ':' then
      local of = string.byte(name) == 65 and string.match(name, AWAY)
      if of then
        levels.away = levels.away or {}
        levels.away[name] = value + 0
      end
      levels.held[of or name] = (levels.held[of or name] or 0) + value
    elseif name == 'GEN' then
      levels.generation = value + 0
    elseif from == '' then
      levels.tat[name] = value + 0
    else
      levels.used[name], levels.from[name] = value + 0, from + 0
    end
  end
  return levels
end

-- Whether something is held or owed still, as a glance shows: with many keys most records are so, and need no more.
local function is_in_use(text)
  if (tonumber(string.match(text, 'GEN=(%d+)')) or 0) ~= limiter.generation then
    return false -- its rates were others
  end
  for name, number, from in string.gmatch(text, '([%w_]+)=(%d+)@?(%d*)') do
    if from == '' and tonumber(number) > now_us and not (limiter.shadows and string.find(name, '^S_')) then
      return true -- what a shadow limit is owed says nothing of what else was owed
    end
  end
  return string.find(text, ':', 1, true) ~= nil
end

-- What is held by name, as texts have it: what is away apart.
pinned.held_apart = function(levels)
  if not levels.away then
    return levels.held
  end
  local apart = {}
  for name, held in pairs(levels.held) do
    apart[name] = held
  end
  for name, away in pairs(levels.away) do
    local of = string.match(name, AWAY)
    apart[of], apart[name] = (apart[of] or 0) - away, away
  end
  return apart
end

-- Two moments are kept as quotas are: OFF, from which on there is no hold-off any more, and the end of the ramp after it.
-- TAG is what a key got so far, while others wait; GEN the settings under which its rates were counted.
local function levels_text(levels)
  local parts = {}
  for name, tat in pairs(levels.tat) do
    if name ~= 'TAG' and tat > now_us or (name == 'TAG' and d.blocked > 0 and tat > d.turns) then
      parts[#parts + 1] = name .. '=' .. int(tat)
    end
  end
  for name, held in pairs(pinned.held_apart(levels)) do
    if held > 0 then
      parts[#parts + 1] = name .. ':' .. int(held)
    end
  end
  for name, used in pairs(levels.used) do
    local over = name == 'OFF' and levels.from[name] <= limiter.now_ms or used == 0
    local limit = limiter.forms[name]
    if not over and (name == 'OFF' or (limit and limit.form == 'quota' and levels.from[name] == window_of(limit))) then
      parts[#parts + 1] = name .. '=' .. int(used) .. '@' .. int(levels.from[name])
    end
  end
  if #parts > 0 and (levels.generation or 0) > 0 then
    parts[#parts + 1] = 'GEN=' .. int(levels.generation)
  end
  return table.concat(parts, ';')
end
