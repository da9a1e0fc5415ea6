--- @include "lib/rate"
--- @include "lib/owed"
--- @include "lib/sides"
-- What rates are owed when they change: of buckets and destinations, and of limiters.

-- Before a rate changes: the tokens that are left (or owed) stay, at most the new burst of them. `us_field` says when it
-- was last used; where there is none, whoever uses it heals a clock that was set back.
local function carry_over(settings, rate_field, burst_field, tat_field, us_field)
  local rate, burst = tonumber(settings[rate_field]), tonumber(settings[burst_field])
  local old = redis.call('HMGET', K_DESTINATION, rate_field, burst_field, tat_field)
  local old_rate, old_burst, tat = tonumber(old[1]), tonumber(old[2]), tonumber(old[3])
  if not rate or not burst or not old_rate or not old_burst or not tat or (rate == old_rate and burst == old_burst) then
    return
  end
  if us_field then
    tat = tat - math.max(0, tonumber(redis.call('HGET', K_DESTINATION, us_field) or 0) - now_us)
    redis.call('HSET', K_DESTINATION, us_field, int(now_us))
  end
  local tokens = math.min(tokens_left(old_rate, old_burst, tat), burst)
  redis.call('HSET', K_DESTINATION, tat_field, int(owe(now_us, burst - tokens, rate)))
end

-- What a rate is owed it is owed still, at most the new burst, and is paid at the new rate; what is no rate any more owes nothing.
local function carry_over_levels(levels, before, after, now)
  local kept = {}
  for entry in string.gmatch(levels, '[^;]+') do
    local name, tat, since = string.match(entry, '^([S_]*[a-z][a-z0-9_]*)=(%d+)(@?%d*)$')
    local side = name and side_of(name, before, after)
    local old_rate, old_burst = rate_of(name and before[name])
    local rate, burst = rate_of(side and after[side])
    if old_rate and rate and (side ~= name or old_rate ~= rate or old_burst ~= burst) then
      tat = int(carried_tat(tat, old_rate, now, rate, burst))
    end
    if not name then
      kept[#kept + 1] = entry
    elseif side and (rate or since ~= '') then
      kept[#kept + 1] = side .. '=' .. tat .. since
    end
  end
  return table.concat(kept, ';')
end

-- Before limits change. Records of keys may be many: each follows as it is next used, from what is noted here.
local function carry_over_limits(settings)
  local old = redis.call('HMGET', K_DESTINATION, 'limits', 'key_limits', 'levels', 'called_us', 'skew_us', 'generation',
    'shadow_limits', 'shadow_key_limits')
  local now = math.max(now_us + tonumber(old[5] or 0), tonumber(old[4] or 0)) -- the limiter's clock is never set back
  local function changes(field, before)
    return settings[field] and settings[field] ~= (before or '')
  end
  if (changes('limits', old[1]) or changes('shadow_limits', old[7])) and old[3] then
    local after = by_level(settings.limits or old[1], settings.shadow_limits or old[7])
    redis.call('HSET', K_DESTINATION, 'levels', carry_over_levels(old[3], by_level(old[1], old[7]), after, now))
  end
  if changes('shadow_limits', old[7]) or changes('shadow_key_limits', old[8]) then
    redis.call('HDEL', K_DESTINATION, 'would_wait', 'shadowed') -- of other shadow limits it is counted anew
  end
  if changes('key_limits', old[2]) or changes('shadow_key_limits', old[8]) then
    redis.call('HSET', K_DESTINATION, 'before', shadows_beside(old[2], old[8]), 'changed_us', int(now), 'generation',
      int((old[6] or 0) + 1))
  end
end

-- Of other shadow limits of a queue, topic, gate or bucket it is counted anew.
local function carry_over_shadow(settings)
  local before = redis.call('HGET', K_DESTINATION, 'shadow') or ''
  local after = settings.shadow or before
  if after ~= before then
    redis.call('HDEL', K_DESTINATION, 'would_wait', 'shadowed', 'levels')
  end
  if before ~= '' or after ~= '' then
    note('shadow', (string.gsub(after, ';', '|')))
  end
end
