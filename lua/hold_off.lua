--[[
  hold_off - let nothing more be admitted by a limiter, or for one of its keys, for a while; then begin slowly.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id   run           the server's run id as the caller learnt it when it connected
  ARGV[2] session  id            of the caller
  ARGV[3] key      '*' or name   whose; '*' for all together
  ARGV[4] ms       ms            from now, no longer than the limiter's `hold_off_ms`; 0 ends a hold-off, and the slow begin
  ARGV[5] reason   text to 200   for people
  Returns {code, ms}; ms: how long it lasts now, one that is longer already included
  Codes    OK, KEYS (there are too many keys), UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/queueing"
local MOST_RAMP_MS = 10000
local run_id, sid, key, ms, reason = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
elseif key ~= NO_KEY and not has_room_for(key) then
  return { 'KEYS' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: it holds back
local levels = key == NO_KEY and limiter.levels or read_key(key).levels
ms = math.min(ms, tonumber(redis.call('HGET', K_LIMITED or K_DESTINATION, 'hold_off_ms') or 3600000))
local ends = math.max(limiter.now_ms + ms, levels.used.OFF or 0)
local function begin_slowly(limit)
  if limit.form == 'rate' and ms > 0 then -- what a rate saves up meanwhile is not let go all at once
    levels.tat[limit.name] = math.max(levels.tat[limit.name] or 0, ends * 1000 + limit.tolerance)
  elseif limit.form == 'rate' and levels.used.OFF and (levels.tat[limit.name] or 0) <= ends * 1000 + limit.tolerance then
    levels.tat[limit.name] = math.min(levels.tat[limit.name] or 0, now_us + limit.tolerance) -- but with the rate, from now on
  end
end
for _, limit in ipairs(key == NO_KEY and limiter.limits or limiter.key_limits) do
  begin_slowly(limit)
end
for _, limit in ipairs(limiter.shadows and limiter.shadows[key == NO_KEY and 1 or 2] or {}) do
  begin_slowly(limit)
end
levels.used.OFF = ms > 0 and ends or nil
levels.from.OFF = ms > 0 and math.max(levels.from.OFF or 0, ends + math.min(ends - limiter.now_ms, MOST_RAMP_MS)) or nil
if key == NO_KEY then
  redis.call('HSET', K_DESTINATION, 'off_reason', ms > 0 and reason or '')
else
  stir_key(key)
end
if d.blocked > 0 then
  serve_line()
end
if limiter.banded then
  save_clocks()
end
by_band.save()
note('off', of_ledger(key), int(ms))
save_holds()
write_ledger('hold_off', sid, 0, 0, 0)
save_limiter()
wake_all('recall')
return { 'OK', int(ms > 0 and ends - limiter.now_ms or 0) }
