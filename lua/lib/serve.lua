--- @include "lib/pool_room"
-- The way out of a pool's line: served from its head.
local SLICES_CHUNK_BYTES = 67108864 -- of a pool that the slices of one queue have for themselves, whoever waits beside

-- Slices of one destination, which share its limit.
local function is_of_slices()
  return string.find(K_POOL, '/', 1, true) ~= nil
end

-- With all that it has already, it asks for more than there is for it: it must first use less itself. What a slice asks for so is
-- one message above the limit of all, which goes while the others have nothing.
local function beyond_limit(m)
  return m.need - m.returned > most_of(m) and not is_of_slices()
end

local function lacks_all(m)
  return is_of_slices() and m.need - m.returned > most_of(m)
end

local function may_be_served(m)
  return not is_full() and (m.need - m.granted <= pool_room(m) or (lacks_all(m) and p.granted == m.granted - m.returned))
end

-- Slices of one queue get more than they need: what each has is as good as what all have, for they ask one another for it.
local function beyond_need(m)
  if not is_of_slices() then
    return 0
  end
  local most = math.min(pool_room(m), p.limit / 8, SLICES_CHUNK_BYTES)
  return math.max(0, math.floor(most / (2 * (redis.call('HLEN', K_MEMBERS) + 1))))
end

local function first_of_slices()
  return is_of_slices() and redis.call('ZRANGE', K_LINE, 0, 0)[1]
end

-- Whoever asks for a slice hears that it is first now, and asks the others for what it lacks.
local function tell_first(before, caller)
  local first = first_of_slices()
  if first and first ~= before and first ~= caller then
    redis.call('PUBLISH', string.gsub(K_POOL, 'pool$', 'wake'), table.concat({ 'first', first }, ' '))
  end
end

-- Nobody asked for it any more, so those behind it need not wait; nor for as long as the clock was set back.
local function is_stale(m)
  return math.abs(now_ms - m.seen) > STALE_MEMBER_MS
end

-- Have one leave the line with what it drew. The caller of the script delivers that.
local function leave_served(member, m, caller)
  redis.call('ZREM', K_LINE, member)
  if member ~= caller then
    save_member(member, m)
    if is_site(member) then
      redis.call('PUBLISH', K_POOL, 'line') -- a node leaves it the answer
    end
    for _, value in ipairs({ member, int(m.epoch), int(m.granted), int(m.returned) }) do
      served[#served + 1] = value
    end
  end
end

-- Serve the line from its head while the room covers the need.
local function serve_line(caller, own)
  for _ = 1, MAX_SERVED do
    local member = p.learning == 0 and redis.call('ZRANGE', K_LINE, 0, 0)[1]
    if not member then
      return
    end
    local m = member == caller and own or read_member(member)
    if not m.known or beyond_limit(m) or (member ~= caller and is_stale(m)) then
      redis.call('ZREM', K_LINE, member) -- who still waits asks again
    elseif may_be_served(m) then
      draw(m, math.max(0, m.need - m.granted))
      draw(m, beyond_need(m))
      leave_served(member, m, caller)
    else
      return
    end
  end
end
