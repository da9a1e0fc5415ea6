--[[
  reap - one bounded sweep of a destination that nobody may be touching: expired leases, orphans, clock jumps.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run  the server's run id as the caller learnt it when it connected
  Returns {code, more_ms}; more_ms: when the next lease ends, or the next message expires or is due, or 0 to call again at once
  Codes    OK, UNKNOWN, KIND (it is a limiter: `admit` without operations does that there)
]]
--- @include "lib/orphans"
--- @include "lib/pace"
if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
elseif d.kind == 'limiter' then
  return { 'KIND' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
clamp_leases()
local reaped = reap()
judge_others()
if reaped or d.orphans > 0 then
  hand_over()
end
if #notes > 0 then
  write_ledger('reap', '-', 0, 0, 0)
end
save_destination()
local first = redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')[2]
local next_ms = math.min((tonumber(first) or now_ms + 60000) - now_ms, next_expiry_ms() or 60000, (d.next_due or math.huge) - now_ms)
local more = d.orphans > 0 and 0 or math.max(0, next_ms)
return { 'OK', int(more) }
