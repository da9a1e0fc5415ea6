--- @include "lib/room"
-- What a destination uses, and lacks, of what a pool lends: bytes, or messages where its slices share a limit in these.
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

-- What the first in line lacks of it, when that is for want of a slice.
local function first_lacks(pool)
  local first = redis.call('ZRANGE', K_WAITERS, 0, 0)[1]
  local s = first and read_session(first)
  if not s then
    return 0
  end
  local lacks, limit = s.need - s.granted, d.limit_bytes
  if pool == d.messages_pool then
    lacks, limit = s.need_m - s.granted_m, d.limit_messages
  elseif is_oversize(s) then
    return is_all_there_is(s) and lacks or 0 -- what is here has to go first
  end
  return used_of(pool) + math.max(0, lacks) <= limit and math.max(0, lacks) or 0
end
