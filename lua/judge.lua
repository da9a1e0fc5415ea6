--[[
  judge - judge the pace of a consumer at all slices of a destination, at the first one, by what its client read at each with `pace`.

  A period lasts from one judgement to the moment at which the next reading began: what was settled in it is in the later totals, so
  nobody is slow for how long a reading takes. It begins anew when hands were empty meanwhile, or the totals are of other parts.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run       the server's run id as the caller learnt it when it connected
  ARGV[2] session   id        of the caller
  ARGV[3] number    1 to 64   k of the consumer '<session>.<k>', its part here, which is its name for all
  ARGV[4] began     total     ms here as the reading began, as `pace` returned it
  ARGV[5] busy_ms   ms        for so long it has held something at one slice or another, as its client knows
  ARGV[6] settled   total     at all slices
  ARGV[7] held      total     likewise
  ARGV[8] waiting   total     likewise
  ARGV[9] parts     id        a digest of its parts and of the epochs of their slices
  Returns {code, epoch, slow, again_ms}; slow: 1 while it is; again_ms: when it may be judged next
  Codes    OK, SLOW (it was too slow, and is closed), EXPIRED (there is no such consumer), UNBOUND (nobody is judged here), UNKNOWN
]]
--- @include "lib/orphans"
--- @include "lib/pace"
local run_id, cid, began, busy_ms, parts = ARGV[1], ARGV[2] .. '.' .. int(tonumber(ARGV[3])), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[9]
local settled, held, waiting = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif not (d.of_slices and (d.slow_rate or d.slow_multiple)) then
  return { 'UNBOUND' }
end
local c = read_consumer(cid)
if not c or redis.call('ZSCORE', K_ORPHANS, cid) then
  return { was_detached(cid) and 'SLOW' or 'EXPIRED', int(d.epoch) }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
local p, period = read_pace(cid), slow_settings()
local before, detach = p and p.slow or 0, false
if p and p.since <= now_ms and began < p.since then -- a late copy
  return { 'OK', int(d.epoch), int(p.slow), int(p.since + period - now_ms) }
end
local lasted = p and math.min(began, now_ms) - p.since
local idle = held == 0 or busy_ms < now_ms - (p and p.since or now_ms)
if not p or p.of ~= parts or p.since > now_ms or settled < p.settled or idle then
  p = { settled = settled, since = now_ms, slow = idle and 0 or before, of = parts }
  detach = save_verdict(cid, p, before)
elseif lasted >= period then
  local few = d.slow_rate and settled - p.settled < d.slow_rate * lasted / 1000
  local many = is_above_windows(c, function()
    return held + waiting
  end)
  p.slow, p.settled, p.since = (few or many) and SLOW or 0, settled, now_ms
  detach = save_verdict(cid, p, before)
end
if detach then
  detach_slow(cid, c)
end
if #notes > 0 then
  write_ledger('reap', '-', 0, 0, 0)
end
save_destination()
return { detach and 'SLOW' or 'OK', int(d.epoch), int(p.slow), int(math.max(0, p.since + period - now_ms)) }
