--[[
  pool - one member's account with a pool: take in what it gave back, and serve those who wait by weighted max-min.

  The member that holds least for its weight is served first, and of equals the one that came first.
  All amounts are totals, so a repeated or late call changes nothing; one from before a loss of state is refused.

  KEYS  the pool's, as lib/pool_keys
  ARGV[1] run_id      run            the server's run id as the caller learnt it when it connected
  ARGV[2] member      name           encoded name of the destination
  ARGV[3] epoch       total          the destination's, as slice returned it
  ARGV[4] pool_epoch  total          the pool's, as the destination heard of it last
  ARGV[5] granted     total          total bytes granted, as the destination knows
  ARGV[6] returned    total          total bytes that it gave back
  ARGV[7] need        total          granted total with which its first waiter could go; as granted when there is none
  ARGV[8] reserved    'yes', 'no' or 'ticket'  'yes' when it may use the reserve, and goes before those who may not; 'ticket': of slices, one message
                                     of it may go above the limit, while nothing is above it
  ARGV[9] weight      1 to 1000      its share, beside those of the other members
  ARGV[10..] pending, heard, short  up to 1 of total; total; 'yes' or 'no'  of a slice whose pool resumes at a level: what is pending
                                     there, the number of `full` that it has heard, and whether nothing is to be had for its first in line
  Returns {code, pool_epoch, granted, returned, place, limit, {member, epoch, granted, returned, ...}, overdrawn, full}; place: in line, 0 when
          not; limit: the most that this member can ever have; the others that were served: deliver it to them; overdrawn: its `returned`
          with which it has paid back what it was lent above the limit, '0' while nothing is above that, '-' where others have to; full:
          odd while the pool lends nothing, until no more is pending than it resumes at
  Codes    OK, LEARNING (state may have been lost: the holding is noted, nothing granted; place 1: the caller is to ask all members),
           UNKNOWN (no such pool), STALE (a newer epoch of the destination was here), GONE (it claims more than was granted)
]]
--- @include "lib/fair"
--- @include "lib/rebuild"
--- @include "lib/full"
local run_id, member, epoch, pool_epoch = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local granted, returned, need, reserved = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == 'yes'
local weight, has_ticket = tonumber(ARGV[9]), ARGV[8] == 'ticket'
local at = 9 -- the last of ARGV before what a slice reports

if not load_pool(run_id) then
  return { 'UNKNOWN' }
end
local m = read_member(member)
if epoch < m.epoch then
  return { 'STALE', int(p.epoch), int(m.granted), int(m.returned), '0', limit_text(p.limit), {} }
elseif pool_epoch > p.epoch then
  begin_learning(pool_epoch) -- the destination has heard of a later pool than this one
end
if p.learning == 0 and granted > m.granted then
  return { 'GONE', int(p.epoch), int(m.granted), int(m.returned), '0', limit_text(p.limit), {} }
end
if returned > m.returned or p.learning > 0 then
  redis.call('HDEL', K_POOL, '-') -- allowed under OOM, and so is all that follows: room must be given back
end
local before = m.granted - m.returned
m.granted = math.max(m.granted, granted)
m.returned = math.min(math.max(m.returned, returned), m.granted)
p.granted = p.granted + m.granted - m.returned - before
m.known, m.epoch, m.need, m.seen, m.reserved, m.weight = true, epoch, need, now_ms, reserved and 1 or 0, weight
m.pending, m.full = tonumber(ARGV[at + 1] or nil), tonumber(ARGV[at + 2] or nil)
if p.learning == 0 and has_ticket then
  local lacks = m.need - m.granted
  if lacks > 0 and lacks <= p.limit and p.granted <= p.limit and is_of_slices() then
    draw(m, lacks)
    m.overdrawn = m.returned + p.granted - p.limit
  end
elseif p.learning == 0 then
  local first = first_of_slices()
  local lacked = need > m.granted
  ask_for(member, m, CHUNK_BYTES) -- before the others are served, to have its part with them
  resume_when_drained(member, m)
  serve_line(member, m)
  if ARGV[at + 3] == 'yes' and not (lacked and need <= m.granted) then
    shut_when_full(member, m)
  end
  tell_first(first, member)
end
local is_within = p.learning == 0 and p.granted <= p.limit
if is_within or m.overdrawn <= m.returned then
  m.overdrawn = 0
end
local place = (redis.call('ZRANK', K_LINE, member) or -1) + 1
local code = 'OK'
if p.learning > 0 then
  code, place = 'LEARNING', is_to_ask() and 1 or 0
end
save_member(member, m)
save_pool()
if place > 0 and code == 'OK' and (p.part_of ~= '' or next(p.sites)) then
  redis.call('PUBLISH', K_POOL, 'line') -- a node fetches what is at another site, or asks sites to give back
end
return { code, int(p.epoch), int(m.granted), int(m.returned), int(place),
  limit_text(most_of(m)), served, is_within and '0' or m.overdrawn > 0 and int(m.overdrawn) or '-', int(p.full) }
