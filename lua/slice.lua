--[[
  slice - what a destination holds of a pool: take in what the pool granted, give back what is not in use.

  That is bytes, or messages where slices of one destination share a limit in these.

  With the first answer since a loss of state, once holders have claimed, all goes back that is not in use.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id      run    the server's run id as the caller learnt it when it connected
  ARGV[2] pool        name   encoded
  ARGV[3] epoch       total  of the destination, which the pool's answer was for; 0 only looks
  ARGV[4] pool_epoch  total  the pool's; 0 when not known
  ARGV[5] granted     total  the pool's total for this destination
  ARGV[6] returned    total  the same of what was given back
  ARGV[7] target      total  total to give back as far as it is not in use; 0 for none
  ARGV[8] debt        'owe', 'void', 'idle', 'keep', 'above' or 'ticket'  'owe': and the rest as soon as it is not in use; 'void': it owes
                             nothing, for it is first in line at the pool and would get that back; 'idle': sessions are to
                             give back what they hold and do not use; 'keep': it owes what it owed; 'above': up to that
                             target it was lent above the limit, and gives it back before anything else, 0 for nothing;
                             'ticket': the same, and a message is to go with it first
  ARGV[9..] full      up to 1 of total  of a pool that resumes at a level, as it answered: where odd, nothing of it is used until
                             there was an even one, and all that is not in use goes back
  Returns {code, epoch, pool_epoch, granted, returned, need, used, reserved, learning_ms, weight, overdrawn, pending, heard, waits}; need: granted total with
          which the first in line could go; used: of it, what is pending and leased; learning_ms: for which holders may still
          claim; weight: its share beside others of the pool; overdrawn: `returned` with which it has paid back what it was lent above
          the limit; the last three only where the pool resumes at a level: pending: of what is used; heard: of `full`; waits: 'no', 'yes',
          or 'here' when the first in line would not fit beside what is here alone
  Codes    OK, UNKNOWN (no such destination), EPOCH (state may have been lost after the caller had looked: nothing was done),
           UNBOUND (a slice whose settings have no such limit yet: nothing was done)
]]
--- @include "lib/orphans"
--- @include "lib/heard"
local MOST_WEIGHT = 1000
local at = 8 -- the last of ARGV before `full`
local run_id, pool, epoch, pool_epoch = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local granted, returned, target, debt = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
local slice, member = read_slice(pool, d), is_member(pool)
if not member and string.find(pool, '%%%.m$') then -- of messages, which is of slices: all that is here is in use
  return { 'UNBOUND' }
end
local function used()
  return member and used_of(pool) or 0
end
local function first_size()
  return member and first_lacks(pool) or 0
end
-- A slice has a part for each session that sends there, as it has at a destination without slices.
local function weight_in(pool, set)
  return is_own(pool) and int(math.max(1, math.min(d.weight, MOST_WEIGHT))) or set or '1'
end
local function reply(code)
  local size, need = first_size(), slice.granted
  if size > 0 then -- in a new epoch the pool is asked first what there is; debts are left out, for who is served has none
    local base = slice.epoch == d.epoch and slice.returned + used() or slice.granted
    need = math.max(need, base + size)
  end
  local about = redis.call('HMGET', K_DESTINATION, 'reserved', 'pool_weight')
  return report_to(pool, size, { code, int(d.epoch), int(slice.pool), int(slice.granted), int(slice.returned), int(need), int(used()),
    about[1] or '', int(member and math.max(0, d.learning_until - now_ms) or 0), weight_in(pool, about[2]),
    int(slice.above) })
end

redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: room must be given back
if (epoch > 0 and epoch ~= d.epoch) or (pool_epoch > 0 and pool_epoch < slice.pool) then
  save_destination()
  return reply('EPOCH')
end
if target > 0 then
  reap() -- perhaps nobody calls here any more, and what others wait for is of the dead, or over
end
local before, known, owed, lent = totals_of(slice), slice.epoch, slice.owed, slice.granted
heed_full(pool, tonumber(ARGV[at + 1] or 0), pool_epoch > slice.pool)
slice.pool = math.max(slice.pool, pool_epoch)
if epoch > 0 then
  if (debt == 'above' or debt == 'ticket') and granted >= slice.granted and is_own(pool) then -- else it is an earlier answer
    note_overdrawn(pool, slice, target)
  end
  slice.drawn = granted > slice.granted and now_ms or slice.drawn
  if granted > slice.granted or debt == 'void' then
    slice.owed = slice.above -- a pool grants to the first in line only, so there is nobody left to whom it could be owed
  end
  slice.granted, slice.returned = math.max(slice.granted, granted), math.max(slice.returned, returned)
  slice.epoch = (slice.epoch == 0 or now_ms >= d.learning_until) and epoch or slice.epoch
end
if slice.epoch == d.epoch then
  local anew = known > 0 and known < slice.epoch -- what was given back before may be forgotten here and at the pool
  anew = anew or (pool == d.slices_pool and has_gone_alone(slice.granted)) or is_shut_by(pool)
  local held, most = (anew or not member) and 0 or held_for_first(pool, slice), anew and slice.granted or target
  local free = slice.granted - used() - held
  if debt == 'owe' then
    slice.owed, slice.asked = math.max(slice.owed, math.min(most, held > 0 and free or slice.granted)), now_ms
  end
  if debt ~= 'ticket' then
    slice.returned = math.max(slice.returned, math.min(math.max(most, slice.owed), free))
  end
  slice.returned = member and is_too_little(pool, slice) and slice.granted or slice.returned
end
slice.owed = math.max(slice.owed, slice.returned)
if slice.above <= slice.returned then
  note_overdrawn(pool, slice, 0)
end
local idle = debt == 'idle' and slice.owed == slice.returned and math.abs(now_ms - slice.asked) >= 200
-- Scripts say for a while what comes free here; sessions may be asked for what is idle as soon as before.
local marks = target > 0 and slice.owed == slice.returned and math.abs(now_ms - slice.asked) >= 1000
slice.asked = idle and now_ms or marks and now_ms - 200 or slice.asked
if member or slice.granted > 0 then
  local changed = before ~= totals_of(slice)
  if changed or debt == 'owe' or idle or marks then
    save_slice(pool, slice)
  end
  if changed then
    note('slice', pool, int(slice.granted), int(slice.returned), int(slice.owed))
  end
end
if d.rules ~= '' then
  judge_rules(d)
end
tell_what_was_lent(pool, slice.granted - lent)
hand_over()
d.owes = idle or slice.owed > slice.returned
local _, leased = used_of(pool)
-- Else who waits elsewhere hears of permits at its next look.
if d.owes and leased > 0 and (idle or (d.kind == 'gate' and slice.owed > owed) or math.abs(now_ms - d.recall_ms) >= 200) then
  d.recall_ms = now_ms -- others wait for what is idle in the hands of holders here
  recall()
end
if #notes > 0 then
  write_ledger('slice', '-', slice.granted, 0, slice.returned)
end
save_destination()
return reply('OK')
