--- @include "lib/keyed"
-- Records of keys that are whole again are nobody's: they are removed by calls that come anyway, and by sweeps.
local SWEEP_AT = 64 -- records that are due to be looked at
local MAX_SWEPT = 512
local sweeping = {}

-- A few are looked at for each that is new, and by every call while a quarter of those seen are nobody's. Returns whether there are more.
sweeping.look = function(due)
  limiter.due = limiter.due + due
  local there = limiter.due < SWEEP_AT and 0 or redis.call('HLEN', K_KEYED)
  if there == 0 then
    return false
  end
  local count, whole = math.min(limiter.due, MAX_SWEPT), 0
  local found = redis.call('HSCAN', K_KEYED, limiter.sweep, 'COUNT', int(count))
  for i = 1, #found[2], 2 do
    if not keyed[found[2][i]] and not is_in_use(found[2][i + 1]) then
      take_in(found[2][i], found[2][i + 1])
      whole = whole + (levels_text(keyed[found[2][i]].levels) ~= found[2][i + 1] and 1 or 0) -- else a quota, or a shadow's
    end
  end
  limiter.sweep, limiter.due = found[1], whole * 8 > #found[2] and SWEEP_AT or 0
  limiter.peak, limiter.has_looked = math.max(limiter.peak, there), true
  return limiter.sweep ~= '0'
end

-- Redis gives the table that many records had back bit by bit, with the commands that meet it: where few are left, they get a new one.
sweeping.give_back_table = function()
  local left = redis.call('HLEN', K_KEYED)
  if left <= MAX_SWEPT and limiter.peak > MAX_SWEPT + 8 * left then
    if left > 0 then
      local all = redis.call('HGETALL', K_KEYED)
      redis.call('DEL', K_KEYED)
      redis.call('HSET', K_KEYED, unpack(all))
    end
    limiter.peak, limiter.sweep = left, '0'
  end
  redis.call('HSET', K_DESTINATION, 'peak', int(limiter.peak), 'sweep', limiter.sweep)
end
