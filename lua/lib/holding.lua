--- @include "lib/shadow"
--- @include "lib/reserve"
-- All limits at once: which of them keeps amounts waiting, and what becomes of all when they are taken, settled, given back.

-- The limit of a name that all have together (1) or that each key has (2), and what is taken of it.
local function limit_and_levels(k, i, name)
  if i == 1 then
    return limiter.forms[name], limiter.levels
  end
  return k.forms[name], k.levels
end

-- Which limit keeps amounts waiting for the longest: us, its name, 'all' or 'key'; 0 where none does. The us are nil where
-- nobody knows; the last is the most that it ever lets through, where that is less.
local function what_binds(key, amounts)
  local k = read_key(key)
  local longest, name, whose = 0, nil, nil
  if limiter.pins and pinned.is_elsewhere(key) then return nil, 'slices', 'key' end -- who waits asks there
  for i = 1, 2 do
    local levels = i == 1 and limiter.levels or k.levels
    local left_us = ((levels.used.OFF or 0) - limiter.now_ms) * 1000
    if left_us > longest then
      longest, name, whose = left_us, 'hold_off', i == 1 and 'all' or 'key'
    end
  end
  for _, amount in ipairs(amounts_of(amounts)) do
    for i = 1, 2 do
      local limit, levels = limit_and_levels(k, i, amount[1])
      if limit then
        local wait, most = judge(limit, levels, amount[3], i == 1 and d.reserve and kept_from(amounts))
        if most then
          return nil, limit.name, i == 1 and 'all' or 'key', most
        elseif longest and (not wait or wait > longest) then
          longest, name, whose = wait, limit.name, i == 1 and 'all' or 'key'
        end
      end
    end
  end
  if d.stopped and not K_LIMITED then -- by hand, until somebody takes that away; a gate that has keys sees to it itself
    return nil, 'stopped', 'all'
  end
  return longest, name, whose
end

-- What keys hold at once is counted also where only all together have a limit: it decides which key goes first.
local function add_held(k, name, number)
  if limiter.pace and number < 0 then came_back[name] = (came_back[name] or 0) - number end
  limiter.levels.held[name] = math.max(0, (limiter.levels.held[name] or 0) + number)
  k.levels.held[name] = math.max(0, (k.levels.held[name] or 0) + number)
end

-- Takes the amounts of a hold, or of several that are alike; `held_only`: only what is held at once.
local function take_amounts(key, amounts, times, held_only)
  local k = read_key(key)
  for _, amount in ipairs(amounts_of(amounts)) do
    if amount[2] == ':' then
      add_held(k, amount[1], amount[3] * times)
    elseif not held_only then
      for i = 1, 2 do
        local limit, levels = limit_and_levels(k, i, amount[1])
        if limit then
          charge(limit, levels, amount[3], times)
        end
      end
    end
  end
end

-- Gives back what a hold, or several that are alike, had at once.
local function give_back(h, times)
  local k = read_key(h.key)
  for _, amount in ipairs(amounts_of(h.amounts)) do
    if amount[2] == ':' then
      add_held(k, amount[1], -amount[3] * times)
    end
  end
end

-- What a reservation of one limit becomes when that much was used. Of what is held at once it only becomes less.
local function settle_amount(h, k, amount, used)
  if amount[2] == ':' then
    used = math.min(used, amount[3])
    add_held(k, amount[1], used - amount[3])
    return used
  end
  for i = 1, 2 do
    local limit, levels = limit_and_levels(k, i, amount[1])
    if limit and limit.form ~= 'at_once' then
      settle_at(limit, levels, amount[3], used, h.since)
    end
  end
  settle_shadows(h, k, amount, used)
  h.settled = 1
  return used
end

-- Says what a hold really takes: of rates and quotas once, of what is held at once as often as it becomes less. What it did not
-- reserve counts for nothing.
local function settle_hold(id, h, text)
  local used, parts, k, again, counts = {}, {}, read_key(h.key), h.settled == 1, false
  for _, amount in ipairs(amounts_of(text)) do
    used[amount[1]] = math.min(amount[3], MOST_COUNTED)
  end
  for _, amount in ipairs(amounts_of(h.amounts)) do
    local number = amount[3]
    if used[amount[1]] and (amount[2] == ':' or not again) then
      number, counts = settle_amount(h, k, amount, used[amount[1]]), true
    end
    if number > 0 then
      parts[#parts + 1] = amount[1] .. amount[2] .. int(number)
    end
  end
  h.amounts = #parts > 0 and table.concat(parts, ',') or '-'
  save_hold(id, h)
  note('used', id, for_ledger(text))
  return counts and 'ok' or 'again'
end
