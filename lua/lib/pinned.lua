--- @include "lib/limits"
-- The keys of a limiter with slices are pinned: each lies in one of them, by a hash of its name, and only that one admits for it.

-- The slice of a key, where there are so many; what has no key is at the first.
pinned.slice_of = function(key, slices)
  local hash = 0
  for i = 1, key == '*' and 0 or #key do
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

-- Whether nothing is admitted here for a key: it is pinned to another slice, or on its way, or what came of it may be lost.
pinned.is_elsewhere = function(key)
  local pins = limiter.pins
  if pins.elsewhere[key] == nil then
    pins.elsewhere[key] = not pins.sure or pinned.slice_of(key, pins.slices) ~= pins.own
      or (pins.version % 2 == 1 and pinned.slice_of(key, pins.before) ~= pins.own)
  end
  return pins.elsewhere[key]
end
