--[[
  levels - read what is taken of a limiter's limits, of all together and of one key; changes nothing.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id  run          the server's run id as the caller learnt it when it connected
  ARGV[2] key     '*' or name  the key that is looked at beside all together
  ARGV[3] most    1 to 1000    how many keys, holds and waiters are listed at the most
  Returns {code, epoch, all, of key, keys, waiting, {key, record, ...}, {key, place, ...}, {hold, record, ...}, learning_ms, off_reason}; of a limit
           '<name> <form> <most> <left> <us until whole> <taken>', with blanks and ';' between; records as they are;
           keys: how many have a record; the keys, holds and places are some of them
  Codes    OK, UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/hold"
local run_id, key, most = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function tell(limits, levels)
  local parts = {}
  for i, limit in ipairs(limits) do
    local name, left, whole_us, taken = limit.name, nil, 0, nil
    if limit.form == 'rate' then
      local tat = tat_of(limit, levels)
      left = math.floor(tokens_left(limit.rate, limit.most, tat))
      whole_us = math.max(0, tat - now_us)
    elseif limit.form == 'quota' then
      left = limit.most - used_of(limit, levels)
      whole_us = window_end(limit) * 1000 - clock_us
    else
      left = most_at_once(limit, levels) - (levels.held[name] or 0)
    end
    taken = limit.most - left
    parts[i] = table.concat({ name, limit.form, int(limit.most), int(left), int(whole_us), int(taken) }, ' ')
  end
  local off = (levels.used.OFF or 0) - limiter.now_ms
  if off > 0 then
    parts[#parts + 1] = 'hold_off off ' .. int(off)
  end
  return table.concat(parts, ';')
end

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
end
local of_key = key ~= NO_KEY and tell(limiter.key_limits, read_key(key).levels) or ''
local records, holds = redis.call('HSCAN', K_KEYED, '0', 'COUNT', int(most))[2], redis.call('HSCAN', K_HOLDS, '0', 'COUNT', int(most))[2]
return { 'OK', int(d.epoch), tell(limiter.limits, limiter.levels), of_key, int(redis.call('HLEN', K_KEYED)), int(d.blocked),
  records, redis.call('ZRANGE', K_LINE, 0, int(most - 1), 'WITHSCORES'), holds, int(math.max(0, d.learning_until - now_ms)),
  redis.call('HGET', K_DESTINATION, 'off_reason') or '' }
