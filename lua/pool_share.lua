--[[
  pool_share - what a pool holds of one at another site: take in what was granted there, give back what is not in use.

  That is the pool's limit, beside its own. Amounts are totals: an answer that is repeated or late changes nothing.

  KEYS  the pool's, as lib/pool_keys
  ARGV[1] run_id    run      the server's run id as the caller learnt it when it connected
  ARGV[2] of        '' or part  the other site and its pool, which the answer is from; '' only looks
  ARGV[3] epoch     total    of this pool, which the answer is for; 0 only looks
  ARGV[4] there     total    epoch of the pool there
  ARGV[5] granted   total    its total for this site
  ARGV[6] returned  total    the same of what was given back
  ARGV[7] most      size     what this site can have there
  ARGV[8] lacks     size     bytes that others lack there: as much goes back as is not in use
  ARGV[9] owed      size     bytes to give back as soon as they are not in use
  ARGV[10] idle     size     bytes to give back as far as they are not in use
  ARGV[11] whose    '' or part  the other site and its pool, which the trouble is of; '' leaves what is known
  ARGV[12] trouble  '', 'unset', 'unreachable', 'failing', 'refused', 'silent', 'unnamed', 'stale', 'twin' or 'ahead'
           why no more is to be had there; '' for nothing
  Returns {code, epoch, there, granted, returned, need, free, owed, of, {member, epoch, granted, returned, ...}}; need:
           granted total with which the first in line could go; free: bytes that no member has; owed: bytes that members
           have to give back; of: which one; last, members that were served: deliver it to them
  Codes    OK, LEARNING (as OK, and state may have been lost: the caller is to ask all members), EPOCH (state may have been
           lost after the caller had looked: nothing was done), CLOSING (it is of a site that the pool does not name, and
           all of it goes back), UNKNOWN (no such pool, or it holds nothing of any other)
]]
--- @include "lib/serve"
--- @include "lib/rebuild"
local run_id, of, epoch, there = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local granted, returned, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local lacks, owed, idle, whose, trouble = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11], ARGV[12]

local known = load_pool(run_id)
if not known then
  new_pool(run_id, 0)
end
if not p.share then
  return { 'UNKNOWN' }
end
local s = p.share

-- Bytes that the first in line lacks, when it is for want of what is at the other site.
local function lacked()
  local first = p.learning == 0 and redis.call('ZRANGE', K_LINE, 0, 0)[1]
  local m = first and read_member(first)
  local short = m and m.need - m.granted - pool_room(m) or 0
  local after = m and p.granted + m.need - m.granted + (m.reserved == 1 and 0 or p.reserve) or 0
  return short > 0 and after <= p.own and short or 0
end

local function reply(code)
  local confirmed = code == 'OK' and s.epoch == p.epoch
  local left = s.granted - s.returned
  local free = confirmed and p.learning == 0 and math.max(0, left - p.granted) or 0
  return { code, int(p.epoch), int(s.there), int(s.granted), int(s.returned), int(s.granted + (confirmed and lacked() or 0)),
    int(free), int(math.max(0, s.owed - s.returned)), s.of, served }
end

-- Allowed under OOM, and so is all that follows: room must be given back.
redis.call('HDEL', K_POOL, whose == p.part_of and 'trouble' or '-')
if whose ~= '' and whose == p.part_of and trouble ~= '' then -- a job that gives back to another site knows nothing of this one
  redis.call('HSET', K_POOL, 'trouble', 'code=' .. trouble .. ' of=' .. whose)
end
if not known or s.of ~= p.part_of then
  if of == s.of then
    s.granted, s.there, s.heard = math.max(s.granted, granted), math.max(s.there, there), now_ms
  end
  s.returned = s.granted
  if of == s.of and returned >= s.granted then
    redis.call('HDEL', K_POOL, 'share')
  else
    redis.call('HSET', K_POOL, 'share', share_text(s))
  end
  return reply('CLOSING')
end
if epoch > 0 and (of ~= s.of or epoch ~= p.epoch or there < s.there) then
  save_pool()
  return reply('EPOCH')
end
if epoch > 0 then
  s.granted, s.returned = math.max(s.granted, granted), math.max(s.returned, returned)
  s.epoch, s.there, s.most, s.heard = epoch, there, most, now_ms
end
local settled = s.epoch == p.epoch and p.learning == 0
owed = math.max(owed, s.granted - s.returned - s.most)
if settled and owed > 0 then
  s.owed, s.asked = math.max(s.owed, math.min(s.granted, s.returned + owed)), now_ms
end
s.owed = math.max(s.owed, s.returned)
set_limit()
serve_line() -- before what is lacking there goes back: the line here has been granted that, while others waited there
if settled then
  local free = math.max(0, s.granted - s.returned - p.granted)
  local wanted = math.max(s.owed - s.returned, lacks, idle)
  s.returned = s.returned + math.min(free, math.max(0, wanted))
  s.owed = math.max(s.owed, s.returned)
  set_limit()
end
redis.call('HSET', K_POOL, 'share', share_text(s))
local answer = reply('OK')
answer[1] = is_to_ask() and 'LEARNING' or 'OK'
save_pool()
return answer
