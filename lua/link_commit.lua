--[[
  link_commit - put what was read at a link's source into its target, in order and once, paid with credit; ask for more.

  Without entries it asks for credit alone, or repeats what it reported, and writes that again.

  KEYS  the destination's, as lib/keys
  ARGV[1]  run_id   run               the server's run id as the caller learnt it when it connected
  ARGV[2]  link     id                id of the link; also of its session here
  ARGV[3]  fence    size              number of the caller's lease on the link; also the incarnation of its account
  ARGV[4]  ttl_ms   ttl               length of the lease on credit
  ARGV[5]  weight   0 to 1000         share among producers
  ARGV[6]  born     total             which destination the source is, as link_open answered
  ARGV[7]  prev     total             number of the message before the first entry, as far as the link is concerned
  ARGV[8]  chain    'keep' or 'lost'  'keep' refuses a prev above the mark; 'lost' accepts it: what lies between is
                                      gone, and hears it
  ARGV[9]  need     'same' or size    bytes of the message that comes after these entries, 0 when that is not known,
                                      'same' leaves what was asked for, and the place in line
  ARGV[10] want     size              bytes of credit to hold, unless need is 'same'
  ARGV[11] segment  '-' or batch      '<name> <bytes> <messages>' of the segment that these bodies are references to, which
                                      cost no bytes of credit; '-' where they are messages
  ARGV[12] keys     text to 33024     as publish has them, of each entry
  ARGV[13] spread   '-' or total      '-' of a link that brings everything here; else it brings each message to the slice of its
                                      value, as the queue is spread by that number
  ARGV[14] done     total             then all up to that number is at one of the slices for good, or was skipped
  ARGV[15..] entries  up to 256 of total; 'never', 'skip', ms or life; text to 60000; bytes  number at the source, ms that it
                                      lives or 'never' or 'skip', path, body; '<ms or never>+<ms>' where it is due that much later
  Returns {code, epoch, mark, held, held_m, place, blocked, again_ms}; mark: number of the last entry that is here, or was
           skipped; held: bytes of credit; place: in line for more, 0 when not. With `spread` the mark is `done`,
           or what it was if that is more, and numbers follow that are here above it
  Codes    OK, GAP (prev is above the mark), NOCREDIT (for the entry after the mark; it waits in line), RATE (no more until
           again_ms), TOO_LARGE (the entry after the mark, or need, exceeds the limit), STOPPED (by hand), UNKNOWN,
           KIND (it stores no messages; the kind follows), FENCED (a later lease; its number follows epoch),
           STALE (the source is an earlier one than was here, its number follows epoch; or the spread is), FULL (no room for the reference
           after the mark, or more numbers above it than may be), BODY (a reference where there may be none, or the reverse; or this lease has not called before)
]]
--- @include "lib/account"
--- @include "lib/reap"
--- @include "lib/brought"
--- @include "lib/beyond"
--- @include "lib/link"
local run_id, link, fence, ttl_ms, from = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local prev, need = tonumber(ARGV[7]), tonumber(ARGV[9])
local at = 14 -- the last of ARGV before the entries
local spools = ARGV[11] ~= '-'
local NOTHING = { epoch = 0, granted = 0, granted_m = 0, used = 0, used_m = 0, returned = 0, returned_m = 0 }

if not all_brought_are(spools, at) then
  return { 'BODY' }
end
if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'queue' and d.kind ~= 'topic' then
  return { 'KIND', d.kind }
end
local l, s = read_target(link), read_session(link)
if fence < l.fence or (s and fence < s.inc) then
  return { 'FENCED', int(d.epoch), int(math.max(l.fence, s and s.inc or 0)) }
elseif from < l.born and fence == l.fence then
  return { 'STALE', int(d.epoch), int(l.born) }
elseif spools and fence ~= l.fence then
  return { 'BODY' } -- segments of leases that are not known here belong to nobody, and are swept
end
local beyond, refusal = read_beyond(link, from, l, tonumber(ARGV[13]), tonumber(ARGV[14]), (#ARGV - at) / 4)
if refusal then return refusal end
redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- no effect but this: under OOM nothing is applied
d.grows, d.caller = true, link
reap_leases()
s = open_account(link, s, fence, ttl_ms, NOTHING)
enrol(s, tonumber(ARGV[5]))
if from ~= l.born then
  l.born, l.mark = from, 0
end
l.fence = fence
if prev > l.mark and ARGV[8] == 'lost' then
  note('regressed', link, int(l.mark), int(prev))
  l.mark = prev
end

local held_b, held_m = held(s)
local code, puts, rate_again = 'OK', { sizes = {}, bytes = 0, mark = math.max(l.mark, beyond and beyond.done or 0), here = beyond and beyond.is }
if d.stopped then
  code = 'STOPPED'
elseif prev > l.mark then
  code = 'GAP'
elseif not (spools and tonumber(ARGV[at + 1]) <= l.mark) then -- else this call was made before
  local lacks = choose(puts, at, link, s, spools)
  if lacks then
    code, need = 'NOCREDIT', lacks
  end
  rate_again = within_rate(puts, at, l.mark, link, s)
  code = rate_again and 'RATE' or code
  if spools and not within_references(puts, at, l.mark, held_m) then
    code = 'FULL'
  end
  charge_rate(puts, link, s)
end
local first, kept = d.message_seq + 1, keeps_messages()
append_each(puts, at, keys_of(ARGV[12], link, (#ARGV - at) / 4), kept, spools and puts.sizes)
local bytes = spools and 0 or puts.bytes
if spools and #puts > 0 then
  keep_segment(ARGV[11], first, first + #puts - 1, puts.references)
  local lacks_m = math.max(0, #puts - held_m) -- references need no credit, but each counts as a message
  s.granted_m = s.granted_m + lacks_m
  add_lease(s, 0, lacks_m)
end
if d.shadow and #puts > 0 then
  charge_shadow_sends(#puts, puts.sizes, kept, spools)
end
s.used, s.used_m = s.used + bytes, s.used_m + #puts
add_lease(s, -bytes, -#puts)
if puts.above then
  void_credit(s)
end
if kept and #puts > 0 then
  d.pending_bytes, d.pending_messages = d.pending_bytes + bytes, d.pending_messages + #puts
  wake_hungry(#puts)
end
if puts.mark > l.mark then
  note('committed', link, int(puts.mark))
end
l.mark = keep_beyond(link, l, beyond, puts) and l.mark or puts.mark
save_target(link, l)

if need then
  if need > 0 and too_large(need, 1) then
    code, need = 'TOO_LARGE', 0
  end
  local base, base_m = s.used + s.returned, s.used_m + s.returned_m
  local ahead = ARGV[13] ~= '-' and ARGV[10] == '0' and 0 or 512 -- two batches; a lane that waits leaves all else to others
  set_needs(s, need > 0 and base + need or s.granted, need > 0 and base_m + 1 or s.granted_m, base + tonumber(ARGV[10]), base_m + ahead, need)
end
renew(link, s, ttl_ms)
ask(link, s)
held_b, held_m = keep_nothing_in_line(link, s)
save_session(link, s)
if #puts > 0 or #notes > 0 then
  write_ledger('publish', link, bytes, #puts, first)
end
save_destination()
local reply = credit_reply(code, link, s)
return { code, reply[2], int(l.mark), int(held_b), int(held_m), reply[5], reply[6], rate_again and int(rate_again) or reply[7], beyond }
