--- @include "lib/limiter_keys"
--- @include "lib/destination"
local LEAST_LEARNING_MS = 3000 -- within which the holders of all leases, however long, claim: they renew each 2.5 s

-- A new epoch learns as long as the longest lease of a hold that is known, where that can be seen.
local function learn_of_holds()
  local longest = 0
  if redis.call('HLEN', K_HOLDS) <= MAX_LEASES then
    for _, record in ipairs(redis.call('HVALS', K_HOLDS)) do
      longest = math.max(longest, tonumber(string.match(record, '^%u (%d+) ')))
    end
  end
  if longest > 0 then
    d.ttl_ms = math.max(longest, LEAST_LEARNING_MS)
    d.learning_until = now_ms + learn_for(d.kind, d.ttl_ms)
  end
end
