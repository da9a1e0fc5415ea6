--- @include "lib/rate"
-- What the first slice knows of a rate that all slices share. `tat` counts what is known to be spent; what was lent beside is in
-- hand, and not to be had by others. A number of `home` stands for what is known without a gap.
local LENDER = 'home=%d epoch=%d us=%d asked=%d turn=0' -- older clients read turns of slices
local LENDER_PATTERN = '^home=(%d+) epoch=(%d+) us=(%d+) asked=(%d+)'
local BORROWER = ' %d:%d,%d,%d,%d,0,0,0'
local BORROWER_PATTERN = ' (%d+):(%d+),(%d+),(%d+),(%d+),'
local lender

-- Nothing is known of slices. Where something may be forgotten that was spent, the whole burst is owed.
local function begin_lending(kind, after, owes)
  lender = { home = math.max(now_ms, after + 1), epoch = d.epoch, us = now_us, asked = 0, members = {},
    tat = owes and owe(now_us, d[kind .. '_burst'], d[kind .. '_rate']) or d[kind .. '_tat'] }
end

local function read_lender(kind)
  local text = redis.call('HGET', K_DESTINATION, kind .. '_lent') or ''
  local home, epoch, us, asked = string.match(text, LENDER_PATTERN)
  if not home or epoch + 0 ~= d.epoch then
    return begin_lending(kind, tonumber(home or 0), home or d.new_epoch or redis.call('HGET', K_DESTINATION, 'epochs'))
  end
  lender = { home = home + 0, epoch = d.epoch, us = now_us, asked = asked + 0, members = {},
    tat = d[kind .. '_tat'] - math.max(0, us - now_us) } -- a clock that was set back must not lock the bucket
  for k, e, granted, spent, back in string.gmatch(text, BORROWER_PATTERN) do
    lender.members[k + 0] = { epoch = e + 0, granted = granted + 0, spent = spent + 0, back = back + 0 }
  end
end

local function save_lender(kind)
  local l = lender
  local parts = { string.format(LENDER, l.home, l.epoch, l.us, l.asked) }
  for k, m in pairs(l.members) do
    parts[#parts + 1] = string.format(BORROWER, k, m.epoch, m.granted, m.spent, m.back)
  end
  redis.call('HSET', K_DESTINATION, kind .. '_lent', table.concat(parts), kind .. '_tat', int(math.max(0, l.tat)))
  save_destination()
end

local function spend(kind, amount)
  if amount > 0 then
    lender.tat = owe(lender.tat, amount, d[kind .. '_rate'])
  end
end

-- Take in what a slice tells. What it had in an earlier epoch may be spent, and counts so.
local function report(kind, slice, epoch, spent, back)
  local m = lender.members[slice] or { epoch = epoch, granted = 0, spent = 0, back = 0 }
  if epoch > m.epoch then
    spend(kind, m.granted - m.spent - m.back)
    m.epoch, m.granted, m.spent, m.back = epoch, 0, 0, 0
  end
  spend(kind, math.min(spent, m.granted - m.back) - m.spent)
  m.spent = math.max(m.spent, math.min(spent, m.granted - m.back))
  m.back = math.max(m.back, math.min(back, m.granted - m.spent))
  lender.members[slice] = m
  return m
end
