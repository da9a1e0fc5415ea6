--[[
  publish - append a batch of messages, paid with the session's credit, and ask for more in the same call.

  KEYS  the destination's, as lib/keys
  ARGV[1]  run_id      run                  the server's run id as the caller learnt it when it connected
  ARGV[2]  session     id                   of the caller
  ARGV[3]  inc         size                 incarnation of the session's account
  ARGV[4]  epoch       total                as last seen
  ARGV[5]  ttl_ms      ttl                  length of the lease
  ARGV[6]  seq         1 to 2^52            number of the batch's first message, counted by the session from 1
  ARGV[7]  need        total                granted total that the next message in the caller's line needs
  ARGV[8]  need_m      total                the same in messages
  ARGV[9]  want        total                granted total that is wanted
  ARGV[10] want_m      total                the same in messages
  ARGV[11] beyond      'refuse', 'hard' or 'spool'  'refuse' a batch that costs more than the credit held; 'hard' lets
                                            it go up to the hard limit, for callers whose own clients count messages and
                                            not bytes; 'spool' takes references, up to a limit of their own
  ARGV[12] expires_ms  ms                   ms after which these messages expire unless settled, 0 for never; the
                                            destination's own `message_ttl_ms` holds beside it
  ARGV[13] segment     '-', seen or batch   with 'spool': '<name> <bytes> <messages>' of the segment that these are references to,
                                            and ' <epoch>-<spreads>' of this slice, as its sender saw them before it looked
                                            that the queue is spread as it thinks, where values say the slice; '-' else.
                                            A node is given '-', or what was seen, and writes the segment
  ARGV[14] keys       text to 132096       where keys take turns, that of each message, with blanks between, or nothing
  ARGV[15] later      moments              where some are for later, when each is due: '<ms>' from now, '@<ms>' by Redis' clock, or
                                            '-', with blanks between; or nothing
  ARGV[16] unwanted    unwanted             of a topic, where some are not for some subscriptions that select: '<subscription>=<id>,...', and
                                            for each message a number whose bits say for which of these it is not, with blanks between; or nothing
  ARGV[17..] bodies      up to 2048 of bytes  1 to 256 messages as stored, whose size is what is charged, or up to 1024
                                            references, which cost no bytes of credit. After references to a topic their payloads may follow, for
                                            subscriptions that are not behind
  Returns {code, epoch, granted, granted_m, place, blocked, again_ms, first, stored}; first: number of the first entry;
           stored: how many of the batch; where the rate allows fewer than all, again_ms is when more may go
  Codes    OK, DUPLICATE (the stored reply of the same batch), UNKNOWN, EXPIRED, FENCED, EPOCH (claim first),
           OVERUSE (more than the credit held: nothing was appended), PASSED (an old batch, long since answered),
           FULL (beyond the hard limit: pending and leased bytes, and that limit follow; or no room for all references:
           0, and for how many there is room, follow), STOPPED (by hand: give the credit back and wait in line), ABOVE (the same,
           for the limit was lowered, or began to bind, since it was granted), STALE (references, and the queue may be spread in another
           way by now: nothing was appended), BODY (a reference where there may be none, or the reverse)
]]
--- @include "lib/reap"
--- @include "lib/sendrate"
--- @include "lib/append"
--- @include "lib/covered"
--- @include "lib/spooled"
--- @include "lib/tried"
--- @include "lib/selecting"
local run_id, sid, inc, epoch, ttl_ms, seq = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6])
local expires_ms = tonumber(ARGV[12])
local at = 16 -- the last of ARGV before the bodies
local messages, seen = string.match(ARGV[13], '^%S+ %d+ (%d+) ?(.*)$')
local count, bytes, spools = tonumber(messages or #ARGV - at), 0, ARGV[11] == 'spool'
local copies = at + count
if at + count > #ARGV or count > (spools and 1024 or 256) or spools ~= (messages ~= nil) or not all_are(spools, at, count) then
  return { 'BODY' } -- nobody reads what is in the store by sending a reference of his own
end
bytes = spools and 0 or stored_bytes(at, count)

if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
end
local s, receipt = read_session(sid), redis.call('GET', K_RECEIPT)
local last, batch, first = 0, 0, 0
if receipt then
  last, batch, first = string.match(receipt, '^(%d+) (%d+) (%d+)')
  last, batch, first = tonumber(last or 0), tonumber(batch or 0), tonumber(first or 0) -- nothing where it is a bucket's
end
if seq == batch then
  local reply = s and credit_reply('DUPLICATE', sid, s) or { 'DUPLICATE', int(d.epoch), '0', '0', '0', int(d.blocked), '1000' }
  reply[8], reply[9] = int(first), int(last - batch + 1)
  return reply
elseif seq <= last then
  return { 'PASSED', int(d.epoch) }
elseif epoch ~= d.epoch then
  return { 'EPOCH', int(d.epoch) } -- before anything else: after a loss of state a claim may bring the account back
elseif not s or is_counted_out(s) then
  return { 'EXPIRED', int(d.epoch) }
elseif s.inc ~= inc then
  return { 'FENCED', int(d.epoch) }
elseif d.stopped or spools and is_of_earlier_spread(seen) then
  return { d.stopped and 'STOPPED' or 'STALE', int(d.epoch) }
end
local rate_again
if d.send_rate or d.send_byte_rate then
  local allowed, again = within_send_rate(sid, s.weight, payload_sizes(at, count))
  if allowed < count then
    rate_again, count, bytes = again, allowed, spools and 0 or stored_bytes(at, allowed)
  end
end
local held_b, held_m = held(s)
local lacks, lacks_m = math.max(0, bytes - held_b), math.max(0, count - held_m)
if spools and references_that_fit(at, count, held_m) < count then
  return { 'FULL', int(d.epoch), '0', int(references_that_fit(at, count, held_m)) }
elseif not spools and (lacks > 0 or lacks_m > 0) then
  local ceiling = math.min(math.max(d.limit_bytes, d.hard_bytes or 0), d.slice_bytes)
  if ARGV[11] == 'refuse' or lacks_m > 0 then
    return { 'OVERUSE', int(d.epoch), int(held_b), int(held_m) }
  elseif d.pending_bytes + d.leased_bytes + lacks > ceiling or d.pending_messages + d.leased_messages > d.limit_messages then
    return { 'FULL', int(d.epoch), int(d.pending_bytes + d.leased_bytes), int(ceiling) }
  end
end
if not spools and not is_covered(sid, s, bytes, count, math.max(d.limit_bytes, ARGV[11] == 'hard' and d.hard_bytes or -1)) then
  return { 'ABOVE', int(d.epoch) }
end

d.grows, d.caller = true, sid
reap_leases()
s.granted, d.leased_bytes = s.granted + lacks, d.leased_bytes + lacks
s.granted_m, d.leased_messages = s.granted_m + lacks_m, d.leased_messages + lacks_m
if d.send_rate or d.send_byte_rate then
  charge_send_rate(sid, s.weight, count, payload_bytes(at, count))
end
first = d.message_seq + 1
local stored, idle, idle_b = append(at, count, expires_ms, spools, keys_of(ARGV[14], sid, count), dues_of(ARGV[15], count),
  unwanted_of(spools, ARGV[16]))
if spools and count > 0 then
  keep_segment(ARGV[13], first, first + count - 1, stored_bytes(at, count))
  if stored and d.subscriptions > 1 and #ARGV > copies then
    keep_hot(copies, count, first)
  end
end
if d.shadow and count > 0 then
  charge_shadow_sends(count, payload_sizes(at, count), stored, spools)
end
s.used, s.used_m = s.used + bytes, s.used_m + count
d.leased_bytes, d.leased_messages = d.leased_bytes - bytes, d.leased_messages - count
if stored then
  d.pending_bytes, d.pending_messages = d.pending_bytes + bytes - idle_b, d.pending_messages + count - idle
  wake_hungry(count)
end
if last > 0 and seq > last + 1 and count > 0 then
  note_lost(seq - last - 1) -- answered once, and gone with what a failover lost
end
if count > 0 then
  redis.call('SET', K_RECEIPT, int(seq + count - 1) .. ' ' .. ARGV[6] .. ' ' .. int(first), 'PX', 3600000)
end
set_needs(s, tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]))
renew(sid, s, ttl_ms)
ask(sid, s)
save_session(sid, s)
if count > 0 or #notes > 0 then
  write_ledger('publish', sid, bytes, count, first)
end
save_destination()
local reply = credit_reply('OK', sid, s)
reply[7], reply[8], reply[9] = rate_again or reply[7], first, count
return reply
