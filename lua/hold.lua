--[[
  hold - enter a segment at a spool store before it is written, paid with the session's credit there.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run      the server's run id as the caller learnt it when it connected
  ARGV[2] session  id       of the caller
  ARGV[3] inc      size     incarnation of the session's account
  ARGV[4] epoch    total    as last seen
  ARGV[5] ttl_ms   ttl      length of the lease
  ARGV[6] segment  segment  '<encoded destination>/<name>'
  ARGV[7] bytes    size     its size
  ARGV[8] sender   id       session that is to publish references to it: without a lease there it never will
  Returns {code, epoch}
  Codes    OK (also for one that is here already), UNKNOWN, EXPIRED, FENCED, EPOCH (claim first), OVERUSE (more than the
           credit held: nothing was entered)
]]
--- @include "lib/reap"
--- @include "lib/ledger"
local sid, inc, epoch, ttl_ms, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
if not load_destination(ARGV[1], ttl_ms) then
  return { 'UNKNOWN' }
end
local s = read_session(sid)
if redis.call('HEXISTS', K_REFS, ARGV[6]) == 1 then
  return { 'OK', int(d.epoch) }
elseif epoch ~= d.epoch then
  return { 'EPOCH', int(d.epoch) }
elseif not s then
  return { 'EXPIRED', int(d.epoch) }
elseif s.inc ~= inc then
  return { 'FENCED', int(d.epoch) }
end
local held_b, held_m = held(s)
if bytes > held_b or held_m < 1 then
  return { 'OVERUSE', int(d.epoch) }
end
d.grows, d.caller = true, sid
reap_leases()
redis.call('HSET', K_REFS, ARGV[6], ARGV[7] .. ' ' .. ARGV[8])
s.used, s.used_m = s.used + bytes, s.used_m + 1
d.leased_bytes, d.leased_messages = d.leased_bytes - bytes, d.leased_messages - 1
d.pending_bytes, d.pending_messages = d.pending_bytes + bytes, d.pending_messages + 1
d.message_seq = d.message_seq + 1
renew(sid, s, ttl_ms)
save_session(sid, s)
write_ledger('publish', sid, bytes, 1, d.message_seq)
save_destination()
return { 'OK', int(d.epoch) }
