--[[
  pool_site - the account of a site with a pool: take in the report that it left, serve it in line, and leave the answer.

  A site writes its own letters and touches nothing else here, so all bounds are this script's. Amounts are totals: a report
  that is repeated, late, or from before a loss of state changes nothing.

  KEYS  the pool's and a site's, as lib/site_key
  ARGV[1] run_id  run   the server's run id as the caller learnt it when it connected
  ARGV[2] site    site  its name
  ARGV[3] mode    'account' or 'forget'  'forget' takes all that it holds for given back, though it may be in use there
  Returns {code, pool_epoch, bytes, place, {member, epoch, granted, returned, ...}}; bytes that it holds, or held that are
           forgotten; place: in line, 0 when not; last, members that were served: deliver it to them
  Codes    OK, SAME (it left no new report), LEARNING (either, and state may have been lost: the caller is to ask all members),
           SILENT (it left none), INVALID (it left what is none), UNKNOWN (no such pool),
           STALE (a newer epoch of that site was here: two go by one name, or its clock was set back), AHEAD (it has heard of
           a later pool than this one: the clock here was set back)
]]
--- @include "lib/fair"
--- @include "lib/rebuild"
--- @include "lib/letters"
local run_id, site, mode = ARGV[1], ARGV[2], ARGV[3]
local SITE_CHUNK_BYTES = 4194304 -- as for members, at a distance
local member = SITE .. site

if not load_pool(run_id) then
  return { 'UNKNOWN', '0', '0', '0', {} }
end
local m = read_member(member)
local held = m.granted - m.returned

local function save()
  if p.sites[member] or m.granted > m.returned then
    save_member(member, m)
  else
    redis.call('HDEL', K_MEMBERS, member)
  end
  save_pool()
end

-- Who is first in line and lacks more than is free: bytes that it lacks, and those that this site has above its level. Its
-- least is in none's reach.
local function wanted()
  local first = redis.call('ZRANGE', K_LINE, 0, 0)[1]
  if not first or first == member or p.learning > 0 then
    return 0, 0
  end
  local f = read_member(first)
  local lacks = math.max(0, f.need - f.granted - math.max(0, pool_room(f)))
  lacks = math.min(lacks, math.max(0, m.granted - m.returned - m.least))
  local level = (f.reserved == 1 or lacks_least(f)) and 0 or math.floor((f.granted - f.returned) * m.weight / f.weight)
  local above = has_a_claim(first, f) and m.granted - m.returned - level or 0
  return lacks, math.max(0, math.min(lacks, above))
end

local function answer(code)
  local lacks, owed = wanted()
  local text = string.format('code=%s epoch=%d pool=%d granted=%d returned=%d most=%d lacks=%d owed=%d least=%d',
    code, m.epoch, p.epoch, m.granted, m.returned, math.max(0, math.min(most_of(m), MOST_COUNTED)), lacks, owed, m.least)
  local before = letter('answer', MOST_LETTER)
  redis.call('HSET', K_SITE, 'answer', text .. ' at=' .. int(now_ms))
  if string.sub(before, 1, #text) ~= text then
    redis.call('PUBLISH', K_SITE, 'answer')
  end
  local place = (redis.call('ZRANK', K_LINE, member) or -1) + 1
  if mode == 'account' and (code == 'OK' or code == 'SAME') and is_to_ask() then
    code = 'LEARNING'
    save_pool()
  end
  return { code, int(p.epoch), int(held), int(place), served }
end

-- A report is another's, or of another time. Whoever looks at the pool is to see that, and answers to two come by turns.
local function refuse(code)
  m.refused = string.lower(code) .. '@' .. int(now_ms)
  save()
  return answer(code)
end

redis.call('HDEL', K_POOL, '-') -- allowed under OOM, and so is all that follows: room must be given back
if mode == 'forget' then
  p.granted = p.granted - held
  m.returned, m.heard, m.epoch = m.granted, p.epoch, 0 -- of any epoch: its clock may have been set back
  redis.call('ZREM', K_LINE, member)
  serve_line(member, m)
  save()
  return answer('OK')
end
local report, silent, numbers = read_report()
if not numbers then
  return { silent and 'SILENT' or 'INVALID', int(p.epoch), int(held), '0', {} }
end
local epoch, there, granted, returned, need = unpack(numbers)
if report == letter('read', MOST_REPORT) then
  serve_line(member, m)
  save()
  return answer('SAME')
elseif epoch < m.epoch then
  return refuse('STALE')
elseif there > p.epoch then
  return refuse('AHEAD')
end
if granted > m.granted then -- it knows of more than is known here: that was lost, and all its part kept, or was forgotten
  local most = m.heard == p.epoch and held or m.most
  m.returned = math.max(m.returned, math.min(returned, granted), granted - most)
  m.granted = granted
else
  m.returned = math.min(math.max(m.returned, returned), m.granted)
end
p.granted = p.granted + m.granted - m.returned - held
m.epoch, m.seen, m.reserved = epoch, now_ms, 0
if there == p.epoch then
  m.heard = p.epoch -- what was granted before this epoch, and is on its way, comes too late there
end
m.need = m.heard == p.epoch and math.max(need, m.granted) or m.granted
if p.learning == 0 then
  if m.heard == p.epoch then -- its least, past the line and whether it asks or not: it is to have that while it is cut off
    draw(m, math.max(0, math.min(m.least - (m.granted - m.returned), pool_room(m))))
    if lacks_least(m) then -- others have it, and it comes back before anything else
      m.need = math.max(m.granted, m.returned + math.min(m.least, most_of(m)))
    end
  end
  ask_for(member, m, SITE_CHUNK_BYTES)
  serve_line(member, m)
end
held = m.granted - m.returned
save()
redis.call('HSET', K_SITE, 'read', report)
return answer('OK')
