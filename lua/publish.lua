--[[
  publish - append a batch of messages, paid with the session's credit, and ask for more in the same call.

  KEYS  the destination's, as lib/keys
  ARGV[1]  run_id    the server's run id as the caller learnt it when it connected
  ARGV[2]  session   id
  ARGV[3]  inc       incarnation of the session's account
  ARGV[4]  epoch     as last seen
  ARGV[5]  ttl_ms    length of the lease
  ARGV[6]  seq       number of the batch's first message, counted by the session from 1
  ARGV[7]  need      granted total that the next message in the caller's line needs
  ARGV[8]  need_m    the same in messages
  ARGV[9]  want      granted total that is wanted
  ARGV[10] want_m    the same in messages
  ARGV[11] expires_ms  ms after which these messages expire unless settled, 0 for never; the destination's own
                     `message_ttl_ms` holds beside it
  ARGV[12..] bodies  1 to 256 messages as stored; their size is what is charged
  Returns {code, epoch, granted, granted_m, place, blocked, again_ms, first}; first: number of the first entry
  Codes    OK, DUPLICATE (the stored reply of the same batch), UNKNOWN, EXPIRED, FENCED, EPOCH (claim first),
           OVERUSE (more than the credit held: nothing was appended), PASSED (an old batch, long since answered)
]]
--- @include "lib/reap"
local run_id, sid, inc, epoch, ttl_ms, seq = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]),
  tonumber(ARGV[6])
local expires_ms = tonumber(ARGV[11])
local count, bytes = #ARGV - 11, 0
for i = 12, #ARGV do
  bytes = bytes + #ARGV[i]
end

if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
end
local s = read_session(sid)
local receipt = redis.call('GET', K_RECEIPT)
local last, batch, first = 0, 0, 0
if receipt then
  last, batch, first = string.match(receipt, '^(%d+) (%d+) (%d+)')
  last, batch, first = tonumber(last), tonumber(batch), tonumber(first)
end
if seq == batch then
  local reply = s and credit_reply('DUPLICATE', sid, s) or { 'DUPLICATE', int(d.epoch), '0', '0', '0', int(d.blocked), '1000' }
  reply[8] = int(first)
  return reply
elseif seq <= last then
  return { 'PASSED', int(d.epoch) }
elseif epoch ~= d.epoch then
  return { 'EPOCH', int(d.epoch) } -- before anything else: after a loss of state a claim may bring the account back
elseif not s then
  return { 'EXPIRED', int(d.epoch) }
elseif s.inc ~= inc then
  return { 'FENCED', int(d.epoch) }
end
local held_b, held_m = held(s)
if bytes > held_b or count > held_m then
  return { 'OVERUSE', int(d.epoch), int(held_b), int(held_m) }
end

d.grows, d.caller = true, sid
reap_leases()
first = d.message_seq + 1
if d.message_ttl_ms and (expires_ms == 0 or d.message_ttl_ms < expires_ms) then
  expires_ms = d.message_ttl_ms
end
local stored = d.kind ~= 'topic' or d.subscriptions > 0
for i = 1, count do
  local body = ARGV[11 + i]
  d.message_seq = d.message_seq + 1
  if stored then
    local id = int(d.message_seq) .. '-' .. int(#body)
    if expires_ms > 0 then
      redis.call('XADD', K_MESSAGES, id, 'm', body, 'x', int(now_ms + expires_ms))
      redis.call('ZADD', K_EXPIRY, int(now_ms + expires_ms), id)
    else
      redis.call('XADD', K_MESSAGES, id, 'm', body)
    end
    if d.subscriptions > 1 then
      redis.call('HSET', K_REFS, int(d.message_seq), int(d.subscriptions))
    end
  end
  d.largest_bytes = math.max(d.largest_bytes, #body)
end
s.used, s.used_m = s.used + bytes, s.used_m + count
d.leased_bytes, d.leased_messages = d.leased_bytes - bytes, d.leased_messages - count
if stored then
  d.pending_bytes, d.pending_messages = d.pending_bytes + bytes, d.pending_messages + count
  wake_hungry(count)
end
if last > 0 and seq > last + 1 then
  note('lost', int(seq - last - 1)) -- answered once, and gone with what a failover lost
end
redis.call('SET', K_RECEIPT, int(seq + count - 1) .. ' ' .. ARGV[6] .. ' ' .. int(first), 'PX', 3600000)
s.need, s.need_m = tonumber(ARGV[7]), tonumber(ARGV[8])
s.want, s.want_m = math.max(tonumber(ARGV[9]), s.need), math.max(tonumber(ARGV[10]), s.need_m)
renew(sid, s, ttl_ms)
ask(sid, s)
save_session(sid, s)
write_ledger('publish', sid, bytes, count, first)
save_destination()
local reply = credit_reply('OK', sid, s)
reply[8] = int(first)
return reply
