--- @include "lib/hold"
--- @include "lib/ledger"
--- @include "lib/would_wait"
-- What shadow limits would have done with those that are admitted: counted, and noted in the ledger.

-- By how much an admission is above a limit.
local function above(limit, levels, amount, wait, most)
  local over = amount - limit.most
  if not most and limit.form == 'rate' then
    over = math.ceil(wait * limit.rate / 1000000)
  elseif not most then
    over = over + (limit.form == 'quota' and used_of(limit, levels) or levels.held[limit.name] or 0)
  end
  return math.min(math.max(0, over), MOST_COUNTED)
end

-- Before an admission is charged to the real limits.
local function charge_shadows(id, key, amounts)
  if not limiter.shadows then
    return
  end
  local k, waits = read_key(key), false
  for _, amount in ipairs(amounts_of(amounts)) do
    for i = 1, (key == NO_KEY or pinned.is_part(key)) and 1 or 2 do
      local limit, levels = limiter.shadows[i][amount[1]], i == 1 and limiter.levels or k.levels
      local wait, most = 0, nil
      if limit then
        wait, most = judge(limit, levels, amount[3])
      end
      if wait ~= 0 then
        local whose, over = i == 1 and 'all' or 'key', above(limit, levels, amount[3], wait, most)
        count_waits(amount[1] .. ':' .. whose, 1, over)
        note('would-wait', id, of_ledger(key), amount[1], whose, most and 'never' or wait and int(wait) or '-', int(over))
        waits = true
      end
      if limit and limit.form ~= 'at_once' then
        charge(limit, levels, amount[3])
      end
    end
  end
  if waits then
    would_wait[1] = would_wait[1] + 1
  end
end

-- Of rates and quotas, when a hold says what it used.
local function settle_shadows(h, k, amount, used)
  for i = 1, limiter.shadows and ((h.key == NO_KEY or pinned.is_part(h.key)) and 1 or 2) or 0 do
    local limit = limiter.shadows[i][amount[1]]
    if limit and limit.form ~= 'at_once' then
      settle_at(limit, i == 1 and limiter.levels or k.levels, amount[3], used, h.since)
    end
  end
end
