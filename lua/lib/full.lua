--- @include "lib/serve"
--- @include "lib/level"
-- Hysteresis of a pool that the slices of one destination have for themselves: once it was full it lends nothing until pending, at all
-- of them together, is down to where the policy resumes.

-- Pending at all slices, as they reported. Of one that did not, and, while the pool is full, of one that had not heard of that as it
-- did, all that it has may be pending.
local function pending_at_all(caller, own)
  local sum = 0
  local function add(held, pending, full)
    local known = pending and (not is_full() or tonumber(full) == p.full)
    sum = sum + (held > 0 and tonumber(known and pending or held) or 0)
  end
  add(own.granted - own.returned, own.pending, own.full)
  local members = redis.call('HGETALL', K_MEMBERS) -- no more than slices
  for i = 1, #members, 2 do
    if members[i] ~= caller then
      local m = parse_member(members[i + 1])
      add(m.granted - m.returned, string.match(members[i + 1], PENDING_PATTERN))
    end
  end
  return sum
end

local function is_above_resume(caller, own)
  local resume = level(tonumber(p.resume) or p.resume, p.own)
  return resume and pending_at_all(caller, own) > resume
end

-- The number of the state: odd while it is full. Slices go by the highest that they heard in an epoch of the pool, so a late
-- answer shuts and opens none.
local function turn()
  p.full = p.full + 1
  redis.call('HSET', K_POOL, 'full', int(p.full))
end

-- As it resumes all that wait have their parts of what is free, by their weights, and what they need first: nobody waits any more
-- then, so it would go to whoever hears first, and asks most often.
local function share_out(caller, own)
  local waiting, weights, bytes = {}, 0, p.limit - p.granted
  for _, member in ipairs(redis.call('ZRANGE', K_LINE, 0, -1)) do
    local m = member == caller and own or read_member(member)
    if m.known and not lacks_all(m) and not is_stale(m) then
      waiting[#waiting + 1], weights, bytes = { member, m }, weights + m.weight, bytes + m.granted - m.returned
    end
  end
  for _, one in ipairs(waiting) do
    local member, m = unpack(one)
    local lacks = math.max(0, m.need - m.granted)
    local part = math.max(lacks, math.floor(bytes * m.weight / weights) - (m.granted - m.returned))
    if lacks <= pool_room(m) then
      draw(m, math.min(part, pool_room(m)))
      leave_served(member, m, caller)
    end
  end
end

local function resume_when_drained(caller, own)
  if is_full() and not is_above_resume(caller, own) then
    turn()
    share_out(caller, own)
  end
end

local function shut_when_full(caller, own)
  if p.resume and not is_full() and is_above_resume(caller, own) then
    turn()
  end
end
