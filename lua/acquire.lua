--[[
  acquire - open, renew, ask for credit, give credit back, leave: one session's account at a destination.

  All amounts are cumulative, so a repeated or reordered call changes nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1]  run_id      run        the server's run id as the caller learnt it when it connected
  ARGV[2]  session     id         of the caller
  ARGV[3]  inc         size       incarnation of the session's account, raised by the caller after EXPIRED or FENCED
  ARGV[4]  epoch       total      as last seen, 0 at first
  ARGV[5]  ttl_ms      ttl        length of the lease
  ARGV[6]  weight      0 to 1000  share among producers; 0 when it does not send now
  ARGV[7]  granted     total      total bytes granted, as last seen; claimed again after a state loss
  ARGV[8]  granted_m   total      the same in messages
  ARGV[9]  used        total      total bytes published, as the caller knows
  ARGV[10] used_m      total      the same in messages
  ARGV[11] returned    total      total bytes given back
  ARGV[12] returned_m  total      the same in messages
  ARGV[13] need        total      granted total that the message at the head of the caller's line needs; as granted when
                                  none
  ARGV[14] need_m      total      the same in messages
  ARGV[15] want        total      granted total that is wanted
  ARGV[16] want_m      total      the same in messages
  ARGV[17] size        size       bytes of that message, 0 when none
  ARGV[18] leave       'leave', 'stay', 'keep' or 'resume'  'leave' gives everything back and ends the account, 'stay'
                                  does not; for a session that another one of the same id may resume, 'keep' leaves and
                                  keeps the receipt, 'resume' stays and tells it
  ARGV[19] sent        size       number of its last message that it has a receipt for; 0 where that is an hour ago
  Returns {code, epoch, granted, granted_m, place, blocked, again_ms, last, stored, lost}; the last three alone with
           'resume', or where the caller knows another epoch: number of the last message that sessions of this id
           published, 0, and how many numbers up to `sent` are not known here
  Codes    OK, LEFT, UNKNOWN (no such destination), EXPIRED (reclaimed: start anew), FENCED (a newer one
           is open; its number follows epoch), OVERUSE (more given back than held), TOO_LARGE (epoch, limit bytes, limit messages follow)
]]
--- @include "lib/account"
--- @include "lib/reap"
--- @include "lib/tried"
local run_id, sid, inc, ttl_ms, leave = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5]),
  ARGV[18] == 'leave' or ARGV[18] == 'keep'
local claim = { epoch = tonumber(ARGV[4]), granted = tonumber(ARGV[7]), granted_m = tonumber(ARGV[8]),
  used = tonumber(ARGV[9]), used_m = tonumber(ARGV[10]), returned = tonumber(ARGV[11]), returned_m = tonumber(ARGV[12]) }
local weight, need, need_m, want, want_m, size, sent = tonumber(ARGV[6]), tonumber(ARGV[13]), tonumber(ARGV[14]),
  tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[19])

local function forget_receipt()
  if ARGV[18] == 'leave' then
    redis.call('DEL', K_RECEIPT)
  end
end

-- Numbers of which the server knows nothing in a new epoch. From then on the receipt covers them, so that nothing
-- counts them again, and says how many they were: a call whose answer was lost is answered alike.
local function count_lost(last, receipt)
  local lost, of = string.match(receipt, '^%d+ 0 (%d+) (%d+)')
  if sent > last then
    note_lost(sent - last)
    redis.call('SET', K_RECEIPT, int(sent) .. ' 0 ' .. int(sent - last) .. ' ' .. int(d.epoch), 'PX', 3600000)
    return sent - last
  end
  return of == int(d.epoch) and tonumber(lost) or 0
end

if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
end
if too_large(math.max(size, need - claim.granted), need_m - claim.granted_m) then
  return { 'TOO_LARGE', int(d.epoch), tostring(d.limit_bytes), tostring(d.limit_messages) }
end
local s = read_session(sid)
if not s and leave then
  forget_receipt()
  return { 'LEFT', int(d.epoch), '0', '0', 0, int(d.blocked), '1000' }
elseif s and s.inc > inc then
  return { 'FENCED', int(d.epoch), int(s.inc) }
elseif not is_known(s, inc, claim) and not claims_open(claim.epoch) then
  return { 'EXPIRED', int(d.epoch) }
elseif s and s.inc == inc and is_counted_out(s) and not leave then
  return { 'EXPIRED', int(d.epoch) }
elseif not leave and claims_open(claim.epoch) and not claim_fits(s, inc, claim) then
  return { 'EXPIRED', int(d.epoch) }
elseif s and s.inc == inc and claim.epoch == d.epoch
  and (claim.returned + s.used > s.granted or claim.returned_m + s.used_m > s.granted_m) then
  return { 'OVERUSE', int(d.epoch) }
end

d.grows, d.caller = not leave, sid
if leave or claim.returned > (s and s.returned or 0) then
  redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: room must be given back
end
local freed = reap_leases()
s = open_account(sid, s, inc, ttl_ms, claim)
if give_back(s, claim) then
  freed = true
end
if leave then
  local bytes, messages = held(s)
  drop_session(sid, s)
  if now_ms < d.learning_until and claim.epoch == d.epoch then
    add_given_back(bytes, messages)
  end
  forget_receipt()
  hand_over()
  write_ledger('leave', sid, bytes, messages, 0)
  save_destination()
  return { 'LEFT', int(d.epoch), int(s.granted), int(s.granted_m), 0, int(d.blocked), '1000' }
end
local known, lost, last = claim.epoch == 0 or claim.epoch == d.epoch, 0, '0'
if ARGV[18] == 'resume' or not known then
  local receipt = redis.call('GET', K_RECEIPT) or '0'
  last = string.match(receipt, '^%d+')
  lost = known and 0 or count_lost(tonumber(last), receipt)
end
enrol(s, weight)
set_needs(s, need, need_m, want, want_m, size)
renew(sid, s, ttl_ms)
local leased, leased_m, lacks, lacks_m = d.leased_bytes, d.leased_messages, s.need - s.granted, s.need_m - s.granted_m
ask(sid, s)
if d.shadow and d.kind == 'gate' and s.since == 0 then
  charge_shadow_grant(lacks, lacks_m, leased, leased_m)
end
save_session(sid, s)
if #notes > 0 then
  write_ledger('acquire', sid, s.granted, s.granted_m, 0)
end
save_destination()
local reply = credit_reply('OK', sid, s)
if ARGV[18] == 'resume' or not known then
  reply[8], reply[9], reply[10] = last, '0', int(lost)
end
return reply
