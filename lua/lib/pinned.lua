--- @include "lib/limits"
--- @include "lib/sides"
-- The keys of a limiter with slices are pinned: each lies in one of them, by a hash of its name, and only that one admits for it.
-- Limits of all keys together are the first slice's: of each key in another one it knows '%.<key>', its part of these limits.

pinned.is_part = function(key)
  return string.byte(key, 1) == 37 and string.byte(key, 2) == 46
end

-- The name of a key, of which this may be the part.
pinned.name_of = function(key)
  return pinned.is_part(key) and string.sub(key, 3) or key
end

-- The slice of a key, where there are so many; what has no key is at the first, and so are parts.
pinned.slice_of = function(key, slices)
  local hash = 0
  for i = 1, (key == '*' or pinned.is_part(key)) and 0 or #key do
    hash = (hash * 65599 + string.byte(key, i)) % 4294967291
  end
  return hash % slices
end

-- '<version> <slices> <before> <epoch>'. With an odd version keys are on their way from where they were `before`; in another
-- epoch than that it is not known what was lost of those that came. A limiter that never had slices has no such text.
pinned.read = function(text)
  local own = tonumber(string.match(K_DESTINATION, '%%%.(%d+)') or 0)
  if own == 0 and not text then
    return nil
  end
  local version, slices, before, epoch = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  return { own = own, version = tonumber(version or 0), slices = tonumber(slices or 1), before = tonumber(before or 1),
    sure = epoch and epoch + 0 == d.epoch, elsewhere = {} }
end

-- Has another slice than the first keep to no limit of all keys together, nor to a shadow limit: of these it admits nothing for
-- whoever does not say that its key's part is taken there, or in hand.
pinned.leave_to_first = function()
  local of_all = {}
  for _, limit in ipairs(limiter.shadows and limiter.shadows[1] or {}) do
    of_all[string.match(limit.name, '^' .. SHADOW .. '(.*)') or limit.name] = SHADOW
  end
  for _, limit in ipairs(limiter.limits) do
    if limit.most < MOST_COUNTED then
      of_all[limit.name], limit.most, limit.adapt = limit.form, MOST_COUNTED, nil
      limit.rate, limit.tolerance = limit.rate and 1e15, limit.rate and MOST_OWED_US
    end
  end
  limiter.of_all, limiter.adapts, d.reserve = next(of_all) and of_all, nil, nil
  limiter.shadows = limiter.shadows and limiter.shadows[2][1] and { {}, limiter.shadows[2] }
end

-- Whether amounts are of what the first slice keeps to, so that a part of them is taken, and counted, there. Nobody is held up
-- for a shadow limit: with `binds` those do not count.
pinned.has_part = function(amounts, binds)
  for name in string.gmatch(limiter.of_all and amounts or '', '([%w_]+)[=:]') do
    local form = limiter.of_all[name]
    if form and not (binds and form == SHADOW) then return true end
  end
  return false
end

pinned.lacks_part = function(text)
  return limiter.of_all and not string.find(text, '&', 1, true) and pinned.has_part(text)
end

-- Whether nothing is admitted here for a key: it is pinned to another slice, or on its way, or what came of it may be lost.
pinned.is_elsewhere = function(key)
  local pins = limiter.pins
  if pinned.is_part(key) then
    return pins.own > 0
  elseif pins.elsewhere[key] == nil then
    pins.elsewhere[key] = not pins.sure or pinned.slice_of(key, pins.slices) ~= pins.own
      or (pins.version % 2 == 1 and pinned.slice_of(key, pins.before) ~= pins.own)
  end
  return pins.elsewhere[key]
end
