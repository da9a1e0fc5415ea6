--[[
  settle - settle deliveries of one consumer, hand what is freed to waiting producers, and fetch more in the same call.

  KEYS  the destination's, as lib/keys
  ARGV[1]  run_id        run            the server's run id as the caller learnt it when it connected
  ARGV[2]  session       id             of the caller
  ARGV[3]  consumer      consumer       id, '<session>.<k>'
  ARGV[4]  ttl_ms        ttl            length of the lease
  ARGV[5]  fetch         size           number of this fetch, counted by the consumer from 1; repeated, it gives nothing
                                        back twice. 0 fetches nothing, and what it gives back is not to be repeated once
                                        more is fetched
  ARGV[6]  max_messages  total          room in the window; without a fetch 1 where this consumer was woken for a message, and has
                                        no room for it: another one is woken
  ARGV[7]  max_bytes     total          room in the window; a larger message is delivered when it is the only one
  ARGV[8]  after         '0' or message  with a repeated fetch number: the last id received, '0' for none
  ARGV[9]  waits         total          how many wait for a message there and have none: where nothing is left for them,
                                        others of the subscription are asked for what they have not begun; of what came
                                        back they get one each first
  ARGV[10] accepted      0 to 256       how many ids of those that follow are accepted,
  ARGV[11] released      0 to 256       then released,
  ARGV[12] rejected      0 to 256       then rejected,
  ARGV[13] failed        0 to 256       then given back as failed attempts
  ARGV[14..] ids         up to 256 of bytes  in that order; released and failed ones with '+<ms>' behind that are to wait so long
  Returns {code, epoch, stale, {id, body, ...}, {attempts, ...}, again_ms, beside, need, want}; stale: ids that were not this subscription's
           to settle; again_ms: when there will be more for it, 0 when that is not known; beside: 1 when nothing is left
           to fetch and others hold messages, and behind that of a slice whose keys take turns '+' and how much of a turn of
           all of them it gave, in 1/2^20; of another that gave some and has more, where that is no 1, '*' and which part that is,
           likewise; older clients read a 1 alone there; need, want: where this slice lacks of the rate of deliveries that all share,
           what the next of those that are there need, and all of them
  Codes    OK, AGAIN (a repeated fetch: what the consumer holds, perhaps known), UNKNOWN, EXPIRED (the consumer is gone:
           nothing was settled, its deliveries went to others), SLOW (the same, because it was too slow)
]]
--- @include "lib/orphans"
--- @include "lib/deliver"
--- @include "lib/pace"
--- @include "lib/settling"
--- @include "lib/mine"
--- @include "lib/given"
local run_id, sid, cid, ttl_ms, fetch = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local at = 13
local stale, freed, bytes, settled, settled_b = 0, 0, 0, 0, 0
local after = {} -- by id, in how many ms those are due that are to wait
local function following(n)
  local ids, count, all = {}, 0, 0
  for i = at + 1, at + tonumber(n) do
    local id, size, ms = read_id(ARGV[i])
    if id then
      count, all = count + 1, all + size
      ids[count] = id
    end
    if ms then
      after[id] = ms
    end
  end
  at, stale, ids.bytes = at + tonumber(n), stale + tonumber(n) - count, all
  return ids
end
local accepted, released, rejected, failed = following(ARGV[10]), following(ARGV[11]), following(ARGV[12]), following(ARGV[13])

if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
end
local s, c = read_session(sid), read_consumer(cid)
if not s or not c or (d.orphans > 0 and redis.call('ZSCORE', K_ORPHANS, cid)) then
  return { was_detached(cid) and 'SLOW' or 'EXPIRED', int(d.epoch) }
end
local held_before = c.delivered - c.settled

redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: a full Redis can always drain
d.caller = sid
if s.seen > now_ms then
  clamp_leases() -- the clock was set back, and what is here may be in the hands of the dead
end
if d.next_due and fetch > c.fetches and d.kind == 'queue' and not d.fair_by then
  d.fetches = tonumber(ARGV[6])
end
local reaped = reap()
c = still_there(reaped, cid, c)
if not c then
  return { 'EXPIRED', int(d.epoch) }
end
local again = fetch > 0 and fetch == c.fetches
for _, ids in ipairs({ accepted, rejected }) do
  if #ids > 0 then
    local n, n_bytes, gone, gone_bytes = settle_ids(c.sub, to_settle(c.sub, cid, ids))
    settled, settled_b, freed, bytes = settled + n, settled_b + n_bytes, freed + gone, bytes + gone_bytes
    stale = stale + #ids - n
  end
end
local function hand_back(ids, as_failed)
  local back = mine(c.sub, cid, ids)
  if #back > 0 then
    redis.call('ZREM', K_HUNGRY, cid) -- others are woken for it
  end
  for _, id in ipairs(back) do
    settled, settled_b = settled + 1, settled_b + size_of(id)
  end
  stale = stale + #ids - #back
  put_back(c.sub, back, as_failed, after)
end
if fetch == 0 or fetch > c.fetches then
  hand_back(released, false)
  hand_back(failed, true)
else
  stale = stale + #released + #failed -- given back the first time, and since then perhaps delivered here again
end
c.settled, c.settled_b = c.settled + settled, c.settled_b + settled_b
local out, counts, delivered_b, again_ms, beside = {}, {}, 0, 0, false
local closed = judge_pace(cid, c, held_before)
if closed then
  detach_slow(cid, c) -- the next call hears of it
elseif again then
  out = deliver_again(cid, c, bytes_of_id(ARGV[8]) and ARGV[8] or '0')
elseif fetch > c.fetches then -- an older one that comes late would deliver to nobody
  if tonumber(ARGV[6]) > 0 then
    out, counts, delivered_b, again_ms, beside = deliver_to(cid, c, tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9]))
  end
  c.fetches = fetch
elseif fetch == 0 and tonumber(ARGV[6]) > 0 then
  wake_hungry(1, c.sub)
end
give_promoted_back(c.sub)
if freed > 0 or reaped or d.expired then
  hand_over(sid, s)
end
-- Who waits is heard of when it asks: one that a late call put in line again does not ask, and may settle for long.
local asked = s.since > 0 and s.seen
renew(sid, s, ttl_ms)
s.seen = asked or s.seen
save_session(sid, s)
save_consumer(cid, c)
if settled > 0 or (#out > 0 and not again) or #notes > 0 then
  note('settled', int(settled_b), int(settled))
  note('fetched', int(delivered_b), int(again and 0 or #out / 2))
  write_ledger('settle', cid, bytes, freed, #rejected)
end
save_destination()
return { again and 'AGAIN' or 'OK', d.epoch, stale, out, counts, again_ms, say_given(out, beside and '1' or '0', again), unpack(d.lacks or {}) }
