--- @include "lib/limiter"
--- @include "lib/sides"
-- The keys that count for `max_keys`. What a shadow limit says of a key is kept beside, of as many again: it keeps nobody out; and so
-- is the part of a key in another slice, which counts there.
local known = {}

-- Whether a record is of a key here, and has more than what shadow limits count.
known.is = function(key, text)
  if pinned.is_part(key) then
    return false
  elseif not limiter.shadows and limiter.shadow_keys == 0 then
    return text ~= ''
  end
  for name in string.gmatch(text, '([%w_]+)[=:]') do
    if name ~= 'GEN' and string.sub(name, 1, 2) ~= SHADOW then
      return true
    end
  end
  return false
end

known.count = function()
  limiter.key_count = limiter.key_count or math.max(0, redis.call('HLEN', K_KEYED) - limiter.shadow_keys)
  return limiter.key_count
end
