--- @include "lib/number"
-- Where a level stands once settings changed: a limit that was a shadow and binds now, or the other way round, keeps its level.
local SHADOW = 'S_' -- before the name of a shadow limit

-- Texts of limits and shadow limits by the names of their levels.
local function by_level(limits, shadows)
  local texts = {}
  for i, text in ipairs({ limits or '', shadows or '' }) do
    for name, limit in string.gmatch(text .. ';', '([%w_]+) ([^;]*);') do
      texts[(i == 2 and SHADOW or '') .. name] = limit
    end
  end
  return texts
end

-- The same in one text.
local function shadows_beside(limits, shadows)
  shadows = shadows and shadows ~= '' and SHADOW .. string.gsub(shadows, ';', ';' .. SHADOW) or ''
  return (limits or '') .. (limits and limits ~= '' and shadows ~= '' and ';' or '') .. shadows
end

local function rate_of(text)
  local rate, burst = string.match(text or '', '^rate (%S+) (%d+)$')
  return tonumber(rate), tonumber(burst)
end

local function is_free(text)
  return not text or string.find(text, ' ' .. int(MOST_COUNTED), 1, true) ~= nil
end

-- Whether a limit of one side goes over to the other with its level: it has it there now, or nothing limited anything there.
local function goes_over(from, to, before, after)
  return before[from] and not after[from] and after[to] and (after[to] == before[from] or is_free(before[to]))
end

-- The name of a level after a change, nil for one that ends.
local function side_of(name, before, after)
  local plain = string.match(name, '^' .. SHADOW .. '(.*)$')
  local shadow = SHADOW .. name
  if plain then
    return after[name] and name or (goes_over(name, plain, before, after) and plain) or nil
  elseif goes_over(shadow, name, before, after) then
    return nil
  end
  local is_tried = after[shadow] and not before[shadow] and (after[shadow] == before[name] or is_free(after[name]))
  return is_tried and not is_free(before[name]) and shadow or name
end
