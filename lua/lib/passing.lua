--- @include "lib/in_turn_of_key"
-- Who may pass those that wait. The first of each line keeps its turn at what refuses it. At a rate or a quota that does not, others
-- pass as far as it does not wait longer for that, or SOON_US; of what is held at once it keeps what it needs only where the rest
-- comes soon, and of several in the order of the limits. So nobody waits for what it does not need, and nobody is passed for ever.
local SOON_US = 1000000
local kept = {} -- by line: its first, and what that keeps

local function each_limit(key, amounts, see)
  local k = read_key(key)
  for _, amount in ipairs(amounts_of(amounts)) do
    for i = 1, 2 do
      local limit, levels = limit_and_levels(k, i, amount[1])
      if limit then
        see(limit, levels, amount[3], i == 2 and key or NO_KEY)
      end
    end
  end
end

local function turns_of(first)
  local line, longest, is_known = first.line, 0, true
  local scarce, kept_back = goes_by_share(line) and line or 0, d.reserve and kept_from(first.h.amounts)
  each_limit(first.key, first.h.amounts, function(limit, levels, amount, whose)
    local wait = judge(limit, levels, amount, whose == NO_KEY and kept_back)
    longest, is_known = math.max(longest, wait or 0), is_known and wait ~= nil
    scarce = wait and scarce or math.max(scarce, (limiter.forms[limit.name] or limit).index)
  end)
  local turns, us = {}, is_known and longest or math.max(longest, SOON_US)
  each_limit(first.key, first.h.amounts, function(limit, levels, amount, whose)
    local whole = judge(limit, levels, amount, whose == NO_KEY and kept_back) ~= 0 or (whose == NO_KEY and limit.index == line)
    if whole or limit.form ~= 'at_once' or (longest <= SOON_US and (is_known or limit.index < scarce)) then
      turns[#turns + 1] = { name = limit.name, whose = whose, amount = amount, us = us, whole = whole }
    end
  end)
  return turns
end

local function keep_turns(line)
  local first = line < NEW and first_of(line) or nil
  kept[line] = first
  if first then
    first.turns = turns_of(first)
  end
end

local function keep_all_turns()
  local line = next_line(0)
  kept = {}
  for _ = 1, NEW do
    if not line or line == NEW then
      return
    end
    keep_turns(line)
    line = next_line(line + 1)
  end
end

-- The first of the lines from `line` on.
local function next_kept(line)
  for at = line, NEW do
    if kept[at] then
      return kept[at]
    end
  end
end

-- The limit at which it would take the turn of somebody before it; `mine` is its place, for whoever is in line.
local function whose_turn(key, amounts, mine)
  -- Whether one in line comes before the first of another line, in the order of a limit for which both wait.
  local function is_before(limit, mine, first)
    local own, its = mine.start, first.start
    if limit.form == 'at_once' and not d.order then
      own, its = share_of(mine.key), share_of(first.key)
    end
    return own < its or (own == its and mine.ticket < first.ticket)
  end

  -- Whether that much of a limit is more than whoever keeps a turn there leaves to others.
  local function takes_turn(turn, limit, levels, amount)
    local both = amount + turn.amount
    if turn.whole then
      return true
    elseif limit.form == 'at_once' then
      return (levels.held[limit.name] or 0) + both > most_at_once(limit, levels)
    elseif limit.form == 'rate' then
      return owe(tat_of(limit, levels), both, limit.rate) - limit.tolerance - now_us > turn.us
    end
    return used_of(limit, levels) + both > limit.most and window_end(limit) * 1000 - clock_us > turn.us
  end

  -- Whether it comes before the first of another line: of two bands the better one does, but for one that was passed far enough;
  -- that leaves to others only what is kept from it.
  local function goes_first(limit, mine, amounts, first)
    local band, its = band_of(amounts), band_of(first.h.amounts)
    if band == its then
      return mine and is_before(limit, mine, first)
    elseif mine and mine.is_aged ~= first.is_aged then
      return mine.is_aged
    end
    local is_kept = first.yields and kept_from(amounts) < kept_from(first.h.amounts)
    return band < its and (not first.is_aged or (is_kept and what_binds(first.key, first.h.amounts) ~= 0))
  end

  local found
  for at, first in pairs(kept) do
    if not mine or at ~= mine.line then
      each_limit(key, amounts, function(limit, levels, amount, whose)
        for _, turn in ipairs(first.turns) do
          if turn.name == limit.name and turn.whose == whose and not goes_first(limit, mine, amounts, first)
            and takes_turn(turn, limit, levels, amount) then
            found = limit.name
          end
        end
      end)
    end
  end
  return found
end
