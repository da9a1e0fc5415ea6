--- @include "lib/estimate"
--- @enclose
-- Keys, holds and waiters of a limiter for people to look at: those that matter first, and never more than is asked for.
local HOLD_KEY = '^%u %d+ %d+ %d+ (%S+)'
local MAX_LISTED = 32
local MAX_BUSIEST = 8
local MAX_SOUGHT = 10000
local rows, listed, heads, wanted = {}, {}, {}, {}

-- One that nothing refuses waits behind others, for the limit of that line. Its place, and when its turn comes, only those hear
-- who ask for it.
local function waiter_text(unit, id, h, is_asked)
  local wait, limit, whose = what_binds(h.key, h.amounts)
  local count = redis.call('ZLEXCOUNT', K_WAITERS, '[' .. unit .. ' ', '(' .. unit .. '!')
  local line = not limit and not heads[unit] and math.floor((redis.call('ZSCORE', K_LINE, unit) or 0) / SPAN)
  limit = limit or (limiter.limits[line] or {}).name or 'line'
  local us, is_known, place, _
  if is_asked then
    us, _, _, is_known, place = estimate(h.key, h.amounts, h.ticket)
  end
  return table.concat({ 'W', h.key, int(count), id, int(h.since), place and int(place) or '-', is_known and int(us) or '-',
    wait and int(wait) or '-', limit, whose or 'all', h.amounts }, ' ')
end

-- A unit's first waiter.
local function list_unit(unit, is_asked)
  local id = not listed[unit] and first_waiter(unit)
  local h = id and read_hold(id)
  if h then
    listed[unit], wanted[h.key] = true, true
    rows[#rows + 1] = waiter_text(unit, id, h, is_asked)
  end
end

-- Of some waiters, drawn at random, the units that come most often.
local function busiest(most)
  local counts, units = {}, {}
  for _, member in ipairs(redis.call('ZRANDMEMBER', K_WAITERS, int(most))) do
    local unit = string.match(member, '^%S+ %S+')
    units[#units + 1] = not counts[unit] and unit or nil
    counts[unit] = (counts[unit] or 0) + 1
  end
  table.sort(units, function(a, b) return counts[a] > counts[b] or (counts[a] == counts[b] and a < b) end)
  return units
end

-- The first of each line come first, and then those of the key that was asked for.
local function list_waiters(key, most)
  local line = next_line(0)
  for _ = 0, NEW do
    local first = line and first_of(line)
    if first then
      heads[first.unit] = true
      list_unit(first.unit, true)
    end
    line = line and next_line(line + 1)
  end
  for _, of in ipairs({ key, '%.' .. key }) do
    for _, unit in ipairs(units_of(of)) do
      list_unit(unit, true)
    end
  end
  for _, unit in ipairs(redis.call('ZRANGE', K_LINE, 0, MAX_LISTED - 1)) do
    list_unit(unit)
  end
  local busy = busiest(most)
  for i = 1, math.min(#busy, MAX_BUSIEST) do
    list_unit(busy[i])
  end
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
    found[i], found[i + 1] = all[i], h.state == 'W' and waiter_text(unit_of(h.key, h.amounts), all[i], h, true) or all[i + 1]
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
