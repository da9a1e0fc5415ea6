--[[
  resolve - end a wait that is part of a deadlock: tell its session, or let its message go above the limit.

  Such a ticket is for one message, and only while nothing else is above the limit: it is granted as credit and so is
  accounted like any other. A slice gives it out of what it holds: what that is short of, its pool lends above the limit before.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run                 the server's run id as the caller learnt it when it connected
  ARGV[2] session  id                  id of the session or link that waits
  ARGV[3] since    total               ms at which it began to wait, as its record says: another wait is left alone
  ARGV[4] mode     'tell' or 'ticket'
  ARGV[5] wait     '' or word          with 'tell', which of its sends is meant, as the session named it
  ARGV[6] text     '' or word          with 'tell', the cycle, without blanks
  Returns {code, epoch}
  Codes    OK, UNKNOWN, GONE (that wait has ended), ABOVE (something is above the limit already), REFUSED (it is not the
           limit that it waits for: stopped by hand, learning, a hold-off, a pool, or too large), SHORT (of a slice, which holds less: {pool, what
           it lacks of that, ...} follow)
]]
--- @include "lib/credit"
--- @include "lib/lent"
local run_id, sid, since = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
local s = read_session(sid)
if not s or s.since == 0 or s.since ~= since then
  return { 'GONE', int(d.epoch) }
elseif ARGV[4] == 'tell' then
  wake(sid, 'deadlock', ARGV[5], ARGV[6])
  return { 'OK', int(d.epoch) }
end
local lacks, lacks_m = math.max(0, s.need - s.granted), math.max(0, s.need_m - s.granted_m)
-- What slices hold of the pools that they have for themselves, whatever they owe of it: of other pools they have no more than others leave them.
local short, is_held_up = {}, false
for _, name in ipairs(d.pools or {}) do
  local slice, needs = read_slice(name, d), name == d.messages_pool and lacks_m or lacks
  local left = is_own(name) and slice.granted - slice.returned or slice_left(d, slice)
  local is_short = needs > 0 and (needs > left - used_of(name) or slice.epoch ~= d.epoch)
  if is_short and (slice.epoch ~= d.epoch or not is_own(name)) then
    is_held_up = true
  elseif is_short then
    short[#short + 1], short[#short + 2] = name, int(needs)
  end
end
is_held_up = is_held_up or (d.begins and (lacks > d.slice_bytes - d.pending_bytes - d.leased_bytes
  or lacks_m > d.slice_messages - d.pending_messages - d.leased_messages))
if d.stopped or now_ms < d.learning_until or never_fits(s) or is_held_up then
  return { 'REFUSED', int(d.epoch) }
elseif is_above() then
  return { 'ABOVE', int(d.epoch) }
elseif #short > 0 then
  return { 'SHORT', int(d.epoch), short }
end

redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- no effect but this: under OOM nothing is applied
local turn = tonumber(redis.call('ZSCORE', K_WAITERS, sid) or 0)
s.granted, s.granted_m = s.granted + lacks, s.granted_m + lacks_m
d.leased_bytes, d.leased_messages = d.leased_bytes + lacks, d.leased_messages + lacks_m
redis.call('HSET', K_DESTINATION, 'ticket', sid .. ' ' .. int(s.granted))
note('ticket', sid, int(lacks), int(lacks_m))
note('grant', sid, int(s.granted), int(s.granted_m))
leave_line(sid)
take_turn(s, turn, lacks)
note('unblock', sid, int(now_ms - s.since))
s.since = 0
save_session(sid, s)
wake(sid, 'credit', int(d.epoch), int(s.inc), int(s.granted), int(s.granted_m))
write_ledger('ticket', sid, lacks, lacks_m, 0)
save_destination()
return { 'OK', int(d.epoch) }
