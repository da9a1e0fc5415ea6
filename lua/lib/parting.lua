--- @include "lib/keyed"
-- Records of keys on their way between slices, with spans of time in place of moments, for each server has a clock of its own.

-- What a key has here; `with_away`: also what it holds elsewhere, as far as is known here.
local function part_with(key, text, with_away)
  take_in(key, text)
  local parts, now = {}, limiter.now_ms
  for name, sign, value, from in string.gmatch(levels_text(keyed[key].levels), LEVEL) do
    if sign == ':' and (with_away or not string.match(name, AWAY)) then
      parts[#parts + 1] = name .. ':' .. value
    elseif name == 'OFF' then
      parts[#parts + 1] = 'OFF=' .. int(math.max(0, value - now)) .. '@' .. int(math.max(0, from - now))
    elseif sign == '=' and from ~= '' then
      parts[#parts + 1] = name .. '=' .. value .. '@' .. from
    elseif sign == '=' and name ~= 'GEN' and name ~= 'TAG' and value + 0 > now_us then
      parts[#parts + 1] = name .. '=' .. int(value - now_us)
    end
  end
  return table.concat(parts, ';')
end

-- Forgets what is held in another slice, or in any.
local function forget_away(levels, source)
  for name, number in pairs(levels.away or {}) do
    if string.match(name, source) then
      levels.held[string.match(name, AWAY)] = levels.held[string.match(name, AWAY)] - number
      levels.away[name] = nil
    end
  end
end

-- Takes in what another slice parted with. Of rates the later moment counts, of quotas the higher count of the later window; once
-- all keys are where they belong, what a late settlement charged there comes on top.
local function take_over(levels, source, record, on_top)
  forget_away(levels, '^A' .. source .. '_')
  levels.away = levels.away or {}
  for name, sign, value, from in string.gmatch(record, LEVEL) do
    value, from = value + 0, tonumber(from)
    if sign == ':' and not string.match(name, AWAY) then
      levels.away['A' .. source .. '_' .. name] = value
      levels.held[name] = (levels.held[name] or 0) + value
    elseif name == 'OFF' and from then
      levels.used.OFF = math.max(levels.used.OFF or 0, limiter.now_ms + value)
      levels.from.OFF = math.max(levels.from.OFF or 0, limiter.now_ms + from)
    elseif sign == '=' and from and from >= (levels.from[name] or 0) then
      local used = from == levels.from[name] and levels.used[name] or 0
      levels.used[name] = math.min(on_top and used + value or math.max(used, value), MOST_COUNTED)
      levels.from[name] = from
    elseif sign == '=' and not from then
      local tat = math.max(levels.tat[name] or 0, now_us)
      levels.tat[name] = math.min(on_top and tat + value or math.max(tat, now_us + value), MOST)
    end
  end
end

-- Forgets what it parted with, and nothing that was charged since.
local function let_go(levels, record)
  forget_away(levels, '')
  for name, sign, value, from in string.gmatch(record, LEVEL) do
    if name == 'OFF' then
      levels.used.OFF, levels.from.OFF = nil, nil
    elseif sign == '=' and from == '' then
      levels.tat[name] = math.max(0, (levels.tat[name] or 0) - value)
    elseif sign == '=' and levels.from[name] == from + 0 then
      levels.used[name] = math.max(0, levels.used[name] - value)
    end
  end
end
