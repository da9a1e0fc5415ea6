--- @include "lib/ledger"
--- @include "lib/rate"
--- @include "lib/would_wait"
-- Shadow limits of queues, topics, gates and buckets: what the real ones let through is charged to these too, and nobody waits.

-- When each rate would be whole again. It goes back with a clock that was set back, as real ones do.
local function read_shadow_levels()
  local levels = {}
  for name, us in string.gmatch(redis.call('HGET', K_DESTINATION, 'levels') or '', 'S_([%w_]+)=(%d+)') do
    levels[name] = tonumber(us)
  end
  local set_back = math.max(0, (levels.at or 0) - now_us)
  for name, us in pairs(levels) do
    levels[name] = us - set_back
  end
  return levels
end

local function save_shadow_levels(levels)
  local parts = { 'S_at=' .. int(now_us) }
  for name, us in pairs(levels) do
    if name ~= 'at' then
      parts[#parts + 1] = 'S_' .. name .. '=' .. int(math.max(0, us))
    end
  end
  redis.call('HSET', K_DESTINATION, 'levels', table.concat(parts, ';'))
end

-- Of amounts that went one after the other, how many would not have had room at once, where that much was left.
local function count_above(amounts, left)
  local times, sum = 0, 0
  for _, amount in ipairs(amounts) do
    if amount > 0 and amount > left - sum then
      times = times + 1
    end
    sum = sum + amount
  end
  return times, sum
end

-- What went now, by shadow limit: each amount, in order, and of what counts while it is there how much of it was before.
local function charge_shadows(amounts, before)
  local levels, most_times, saved = read_shadow_levels(), 0, false
  for name, form, number, burst in string.gmatch(d.shadow .. ';', '([%w_]+) (%S+) ([^ ;]+) ?(%d*);') do
    local rate, left = tonumber(number), nil
    if form == 'at_once' then
      left = before[name] and rate - before[name]
    else
      left = amounts[name] and tokens_left(rate, burst + 0, levels[name] or 0)
    end
    if left and amounts[name] then
      local times, sum = count_above(amounts[name], left)
      if form == 'rate' then
        levels[name], saved = math.min(owe(levels[name] or 0, sum, rate), MOST), true
      end
      if times > 0 then
        local over = math.min(math.ceil(sum - left), MOST_COUNTED)
        count_waits(name .. ':all', times, over)
        note('would-block', name, int(times), int(over))
        most_times = math.max(most_times, times)
      end
    end
  end
  if most_times > 0 then
    would_wait[1] = would_wait[1] + most_times
    save_would_wait()
  end
  if saved then
    save_shadow_levels(levels)
  end
end

-- Of a gate: credit that a session's first in line needed, and got at once.
local function charge_shadow_grant(bytes, messages, leased, leased_m)
  charge_shadows({ bytes = { math.max(0, bytes) }, messages = { math.max(0, messages) } },
    { bytes = leased, messages = leased_m })
end

-- Messages as they are stored, one after the other: the bytes of each as it was sent. References count none under a limit.
local function charge_shadow_sends(count, sizes, stored, references)
  local ones, sent, counts = {}, {}, {}
  for i = 1, count do
    ones[i], sent[i], counts[i] = 1, sizes[i], references and 0 or sizes[i]
  end
  charge_shadows({ bytes = counts, messages = ones, rate = ones, byte_rate = sent },
    stored and { bytes = d.pending_bytes, messages = d.pending_messages } or {})
end
