--- @include "lib/queueing"
-- Keys, holds and waiters of a limiter for people to look at: those that matter first, and never more than is asked for.
local HOLD_KEY = '^%u %d+ %d+ %d+ (%S+)'
local MAX_LISTED = 32
local MAX_BUSIEST = 8
local MAX_SOUGHT = 10000
local rows, listed, wanted = {}, {}, {}

local function waiter_text(of, id, h)
  local wait, limit, whose = what_binds(of, h.amounts)
  local count = redis.call('ZLEXCOUNT', K_WAITERS, '[' .. of .. ' ', '(' .. of .. '!')
  return table.concat({ 'W', of, int(count), id, int(h.since), wait and int(wait) or '-', limit or 'line', whose or 'all', h.amounts }, ' ')
end

-- A key's first waiter.
local function list_key(of)
  local id = not listed[of] and first_waiter(of)
  local h = id and read_hold(id)
  if h then
    listed[of], wanted[of] = true, true
    rows[#rows + 1] = waiter_text(of, id, h)
  end
end

-- Of some waiters, drawn at random, the keys that come most often.
local function busiest(most)
  local counts, keys = {}, {}
  for _, member in ipairs(redis.call('ZRANDMEMBER', K_WAITERS, int(most))) do
    local of = string.match(member, '^(%S+)')
    keys[#keys + 1] = not counts[of] and of or nil
    counts[of] = (counts[of] or 0) + 1
  end
  table.sort(keys, function(a, b) return counts[a] > counts[b] or (counts[a] == counts[b] and a < b) end)
  return keys
end

local function list_waiters(key, most)
  local head = next_in_line() or redis.call('ZRANGE', K_LINE, 0, 0)[1]
  list_key(head or NO_KEY)
  for _, of in ipairs(redis.call('ZRANGE', K_LINE, 0, MAX_LISTED - 1)) do
    list_key(of)
  end
  local busy = busiest(most)
  for i = 1, math.min(#busy, MAX_BUSIEST) do
    list_key(busy[i])
  end
  list_key(key)
end

local function holds_of(ids)
  local found = {}
  for i, text in ipairs(#ids > 0 and redis.call('HMGET', K_HOLDS, unpack(ids)) or {}) do
    if text then
      found[#found + 1], found[#found + 2] = ids[i], text
      wanted[string.match(text, HOLD_KEY)] = true
    end
  end
  return found
end

local function holds_of_session(who)
  local found = {}
  local all = who ~= '-' and redis.call('HSCAN', K_HOLDS, '0', 'MATCH', who .. '.*', 'COUNT', MAX_SOUGHT)[2] or {}
  for i = 1, math.min(#all, 2 * MAX_LISTED), 2 do
    local h = read_hold(all[i])
    found[i], found[i + 1] = all[i], h.state == 'W' and waiter_text(h.key, all[i], h) or all[i + 1]
  end
  return found
end

-- Records of some keys, and of those that were named.
local function records(most)
  local found = most > 0 and redis.call('HSCAN', K_KEYED, '0', 'COUNT', int(most))[2] or {}
  for i = 1, #found, 2 do
    wanted[found[i]] = nil
  end
  local names = {}
  for of in pairs(wanted) do
    names[#names + 1] = of
  end
  for i, text in ipairs(#names > 0 and redis.call('HMGET', K_KEYED, unpack(names)) or {}) do
    if text then
      found[#found + 1], found[#found + 2] = names[i], text
    end
  end
  return found
end
