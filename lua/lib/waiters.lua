--- @include "lib/turns"
-- Those who wait for one key, in turn.
local STALE_WAITER_MS = 3000
local joined = {} -- in this call, by id

-- Until when a waiter keeps its place after it asked; one that died meanwhile gets nothing that it would keep past its TTL + 1 s.
local function stale_after(h)
  return math.min(STALE_WAITER_MS, 700 + math.floor(h.ttl * 6 / 10))
end

local function first_waiter(key)
  local member = redis.call('ZRANGEBYLEX', K_WAITERS, '[' .. key .. ' ', '(' .. key .. '!', 'LIMIT', 0, 1)[1]
  return member and string.match(member, '(%S+)$')
end

local function waiter_member(id, h)
  return string.format('%s %016d %s', h.key, h.ticket, id)
end

local function join_line(id, h)
  d.tickets = d.tickets + 1
  h.state, h.ticket = 'W', d.tickets
  d.blocked = d.blocked + redis.call('ZADD', K_WAITERS, 0, waiter_member(id, h))
  joined[id] = true
  save_hold(id, h)
  if not redis.call('ZSCORE', K_LINE, h.key) then
    place_key(h.key)
  end
end

local function leave_line(id, h)
  d.blocked = d.blocked - redis.call('ZREM', K_WAITERS, waiter_member(id, h))
  if not first_waiter(h.key) then
    redis.call('ZREM', K_LINE, h.key)
    redis.call('ZREM', K_SHARES, h.key)
  end
end
