--- @include "lib/taking"
--- @include "lib/limiter"
--- @include "lib/known"
--- @include "lib/owed"
--- @include "lib/sides"
--- @include "lib/weights"
-- The records of the keys that a call meets, read once and written once; what is whole again has none.
local NO_KEY = '*'
local keyed = {}

-- A key that was last used under other limits: what it owed then it owes, at the most a burst, and pays at the new rate.
local function carry_over_key(levels)
  local before, after = by_level(limiter.before), by_level(limiter.key_text, limiter.shadow_key_text)
  local tats, used, from = {}, {}, {}
  for name, tat in pairs(levels.tat) do
    local side = not before[name] and name or side_of(name, before, after)
    local old_rate = rate_of(before[name])
    local rate, burst = rate_of(side and after[side])
    if side then
      tats[side] = old_rate and rate and carried_tat(tat, old_rate, limiter.changed_us, rate, burst) or tat
    end
  end
  for name, number in pairs(levels.used) do
    local side = not before[name] and name or side_of(name, before, after)
    if side then
      used[side], from[side] = number, levels.from[name]
    end
  end
  levels.tat, levels.used, levels.from = tats, used, from
end

local function take_in(key, text)
  local levels = parse_levels(text or '')
  if text and (levels.generation or 0) < limiter.generation then
    carry_over_key(levels)
  end
  levels.generation = limiter.generation
  keyed[key] = { levels = levels, text = text or '',
    forms = key ~= NO_KEY and not pinned.is_part(key) and limiter.key_forms or {} }
end

local function read_key(key)
  if not keyed[key] then
    take_in(key, redis.call('HGET', K_KEYED, key) or nil)
  end
  return keyed[key]
end

-- Its share beside other keys, and whether the policy speaks of it.
local function weight_of(key)
  return weight_among(limiter.weights, pinned.name_of(key))
end

local function has_room_for(key)
  local k = read_key(key)
  if not k.is_counted and not known.is(key, k.text) then
    k.is_counted = known.count() < limiter.max_keys
    limiter.key_count = limiter.key_count + (k.is_counted and 1 or 0)
    return k.is_counted
  end
  return true
end

local function save_key(key, k)
  local text = levels_text(k.levels)
  if text == k.text then
    return
  end
  local was, is = k.text ~= '' and not known.is(key, k.text), text ~= '' and not known.is(key, text)
  if is and not was and limiter.shadow_keys >= limiter.max_keys then
    text, is = '', false
  end
  if was ~= is then
    limiter.shadow_keys = math.max(0, limiter.shadow_keys + (is and 1 or -1))
    redis.call('HSET', K_DESTINATION, 'shadow_keys', int(limiter.shadow_keys))
  end
  if text == '' then
    redis.call('HDEL', K_KEYED, key)
  else
    if k.text == '' then
      limiter.due = limiter.due + 4
    end
    redis.call('HSET', K_KEYED, key, text)
  end
end

local function save_limiter()
  for key, k in pairs(keyed) do
    save_key(key, k)
  end
  if K_LIMITED then
    save_by_key()
  end
  if limiter.adapts then
    adapting.save()
  end
  redis.call('HSET', K_DESTINATION, 'levels', levels_text(limiter.levels), 'called_us', int(now_us), 'skew_us',
    int(limiter.skew), 'sweep', limiter.sweep, 'due', int(limiter.due), 'front', limiter.front,
    'admitted', int(limiter.admitted), 'refused', int(limiter.refused))
  save_destination()
end
