--- @include "lib/room"
-- What a destination uses, and lacks, of what a pool lends: bytes, or messages where its slices share a limit in these.

local HELD_MS = 1000 -- for which what was drawn for the first in line is not taken away before it could go

local function is_member(pool)
  for _, name in ipairs(d.pools or {}) do
    if name == pool then
      return true
    end
  end
  return false
end

-- What is pending and leased of it, and what is leased.
local function used_of(pool)
  if pool == d.messages_pool then
    return d.pending_messages + d.leased_messages, d.leased_messages
  end
  return d.pending_bytes + d.leased_bytes, d.leased_bytes
end

local function lacks_of(pool, s)
  return math.max(0, pool == d.messages_pool and s.need_m - s.granted_m or s.need - s.granted)
end

-- What the first in line lacks of it, when that is for want of a slice.
local function first_lacks(pool)
  local first = redis.call('ZRANGE', K_WAITERS, 0, 0)[1]
  local s = first and read_session(first)
  if not s then
    return 0
  end
  local lacks, limit = lacks_of(pool, s), pool == d.messages_pool and d.limit_messages or d.limit_bytes
  if pool ~= d.messages_pool and is_oversize(s) then
    return is_all_there_is(s) and lacks or 0 -- what is here has to go first
  end
  return used_of(pool) + lacks <= limit and lacks or 0
end

-- Pools are drawn in the order of their names, but messages first where a store takes what finds no bytes: each reference counts as one.
local function is_drawn_before(name, pool)
  if d.store and (name == d.messages_pool or pool == d.messages_pool) then
    return name == d.messages_pool
  end
  return name < pool
end

-- Who draws pools in one order and is let finish can wait for nobody who waits for it.
local function held_for_first(pool, slice)
  local size = first_lacks(pool)
  if math.abs(now_ms - slice.drawn) >= HELD_MS or slice_left(d, slice) < used_of(pool) + size then
    return 0
  end
  for _, name in ipairs(d.pools or {}) do
    if is_drawn_before(name, pool) and slice_left(d, read_slice(name, d)) < used_of(name) + first_lacks(name) then
      return 0
    end
  end
  return size
end

-- Whether it is a pool that slices have for themselves.
local function is_own(pool)
  return d.of_slices and string.find(pool, '%%%.[0m]$') ~= nil
end

-- To a slice that waits for more than its level nothing comes from others above theirs: permits are taken again and again, and others that
-- send small messages hold as little. It gives all back where its first needs more and it uses nothing, and stands in line as one that has nothing.
local function is_too_little(pool, slice)
  return is_own(pool) and used_of(pool) == 0 and first_lacks(pool) > slice.granted - slice.returned
end

-- What a slice was lent above the limit it gives back before anything else, whoever waits there: up to that `returned`. It is a rule
-- while there is any, so all others read nothing of it.
local function note_overdrawn(pool, slice, total)
  local field = pool == d.messages_pool and 'overdrawn_messages' or 'overdrawn_bytes'
  if slice.above == total then
    return
  end
  slice.above, slice.owed = total, total > 0 and math.max(slice.owed, total) or slice.returned
  if total > 0 then
    redis.call('HSET', K_DESTINATION, field, int(total))
  else
    redis.call('HDEL', K_DESTINATION, field)
  end
  d[field], d.slices_pool = total > 0 and total or nil, d.slices_pool or d.pools[1]
  redis.call('HSET', K_DESTINATION, 'rules', name_rules())
  note('overdrawn', pool, int(total))
end
