--- @include "lib/alike"
-- Admissions of one call that all have room change nothing for one another, in whatever order they come: they are let in together, and
-- what they take is reckoned once for each key.
local TAKEN = '-' -- for a record, while it is not known whether all have room

-- Whether there is room for amounts that each would be let through, and take that much together.
together.is_room_for = function(limit, levels, part)
  if limit.form == 'rate' then
    return math.max(tat_of(limit, levels), now_us) + part <= now_us + limit.tolerance
  elseif limit.form == 'quota' then
    return used_of(limit, levels) + part <= limit.most
  end
  return (levels.held[limit.name] or 0) + part <= math.min(limit.most, most_at_once(limit, levels))
end

-- The admissions from `at` on, by key and amounts, each with its times and its first hold; nil where they are to be looked at one by
-- one, as each that was there before. Then how many they are.
together.group = function(at)
  local groups, count, ttl = {}, 0, ARGV[at + 4]
  for each = at, #ARGV, 6 do
    local id, key, text = ARGV[each + 1], ARGV[each + 2], ARGV[each + 3]
    if ARGV[each] ~= 'admit' then
      break
    elseif texts[id] ~= false or ARGV[each + 4] ~= ttl or (limiter.pins and (pinned.is_elsewhere(key) or pinned.lacks_part(text))) then
      groups = nil
      break
    end
    local of_key = groups[key] or {}
    local group = of_key[text] or { id = id, times = 0 }
    groups[key], of_key[text], texts[id] = of_key, group, TAKEN
    group.times, count = group.times + 1, count + 1
  end
  for each = at, at + 6 * count - 1, 6 do
    texts[ARGV[each + 1]] = false
  end
  return groups, count
end

-- Whether a key and its amounts, that many times, have room beside those that were looked at before.
together.has_room_beside = function(asked, key, text, times)
  local amounts, k = name_amounts(text), read_key(key)
  if not amounts or amounts == '-' or string.find(text, '~', 1, true) or (k.levels.used.OFF or 0) > limiter.now_ms then
    return false
  end
  for _, amount in ipairs(amounts_of(amounts)) do
    for i = 1, 2 do
      local limit, levels = limit_and_levels(k, i, amount[1])
      if limit then
        local of = asked[levels] or {}
        asked[levels], of[amount[1]] = of, (of[amount[1]] or 0) + part_taken(limit, amount[3]) * times
        if judge(limit, levels, amount[3]) ~= 0 or not together.is_room_for(limit, levels, of[amount[1]]) then
          return false
        end
      end
    end
  end
  return true
end

together.have_room = function(groups)
  local asked, new = {}, 0
  for key, of_key in pairs(groups) do
    new = new + (known.is(key, read_key(key).text) and 0 or 1)
    for text, group in pairs(of_key) do
      if not together.has_room_beside(asked, key, text, group.times) then
        return false
      end
    end
  end
  return new == 0 or known.count() + new <= limiter.max_keys
end

-- Admits all from `at` on that come one after the other, if all have room; returns how many these are. Where others wait, or where
-- what is left depends on who asks, each is looked at.
together.admit = function(at)
  if ARGV[at + 6] ~= 'admit' or limiter.one_by_one or d.blocked > 0 or d.bands or d.reserve or d.shed or limiter.shadows or limiter.refuse
    or (d.stopped and not K_LIMITED) or (limiter.levels.used.OFF or 0) > limiter.now_ms then
    return 0
  end
  local groups, count = together.group(at)
  if not groups or room_for_holds() < count or not together.have_room(groups) then
    limiter.one_by_one = true -- or each of them would look at all after it
    return 0
  end
  for key, of_key in pairs(groups) do
    has_room_for(key) -- it is counted
    for text, group in pairs(of_key) do
      local h = { state = 'H', since = now_ms, key = key, settled = 0, amounts = name_amounts(text), ticket = 0 }
      limiter.admitted = limiter.admitted + (pinned.has_part(h.amounts) and 0 or group.times)
      take_amounts(key, h.amounts, group.times)
      renew_hold(group.id, h, tonumber(ARGV[at + 4]), limiter.now_ms)
      save_hold(group.id, h)
      group.text, group.lease = texts[group.id], leases[group.id]
      group.noted = ':' .. of_ledger(key) .. ':' .. for_ledger(h.amounts)
    end
  end
  for _ = 1, count do
    local id, group = ARGV[at + 1], groups[ARGV[at + 2]][ARGV[at + 3]]
    store_hold(id, group.text)
    leases[id] = group.lease
    notes[#notes + 1] = 'held:' .. id .. group.noted
    at = at + 6
  end
  return count
end
