--- @include "lib/limiter_keys"
--- @include "lib/clock"
-- Windows of quotas: an hour, a day, a week or a month of a time zone, whose offsets from UTC the policy wrote down. They go by
-- the clock as it is, for people read it; all other times of limiters go by one that is never set back.
local DAY = 86400
local MAX_OFFSETS = 128
local clock_us = now_us
local windows = {} -- by what they are; `zone` is that text

local function offset_at(seconds)
  local offset, seen = 0, 0
  for from, value in string.gmatch(windows.zone or '', '(%d+) (%-?%d+)') do
    seen = seen + 1
    if from + 0 > seconds or seen > MAX_OFFSETS then
      break
    end
    offset = value + 0
  end
  return offset
end

-- Days since 1970 of the first of a month; the year begins in March, so that leap days come last.
local function first_of_month(year, month)
  local y = month <= 2 and year - 1 or year
  local era_year = y % 400
  local day = math.floor((153 * ((month + 9) % 12) + 2) / 5)
  return math.floor(y / 400) * 146097 + era_year * 365 + math.floor(era_year / 4) - math.floor(era_year / 100) + day - 719468
end

local function month_of(days)
  local z = days + 719468
  local of_era = z % 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = (math.floor((5 * of_year + 2) / 153) + 2) % 12 + 1
  return math.floor(z / 146097) * 400 + year + (month <= 2 and 1 or 0), month
end

-- Local seconds at which the window that holds a local moment begins, and the one after it.
local function local_window(window, seconds)
  local days = math.floor(seconds / DAY)
  if window == 'hour' then
    local first = seconds - seconds % 3600
    return first, first + 3600
  elseif window == 'day' then
    return days * DAY, (days + 1) * DAY
  elseif window == 'week' then -- from Monday; 1970 began on a Thursday
    local monday = days - (days + 3) % 7
    return monday * DAY, (monday + 7) * DAY
  end
  local year, month = month_of(days)
  return first_of_month(year, month) * DAY, first_of_month(month == 12 and year + 1 or year, month % 12 + 1) * DAY
end

local function to_utc(seconds)
  local guess = seconds - offset_at(seconds)
  return seconds - offset_at(guess)
end

-- Ms at which the window of a quota began that it is in now, and those at which it ends.
local function find_window(limit)
  local name = limit.window .. ' ' .. limit.minutes
  if not windows[name] then
    local now_s, shift = math.floor(clock_us / 1000000), limit.minutes * 60
    local first, last = local_window(limit.window, now_s + offset_at(now_s) - shift)
    local from, to = to_utc(first + shift), to_utc(last + shift)
    if from > now_s then -- between two offsets an hour comes twice
      from, to = to_utc(local_window(limit.window, first - 1) + shift), from
    end
    windows[name] = { from * 1000, math.max(to, now_s + 1) * 1000 }
  end
  return windows[name]
end

local function window_of(limit)
  return find_window(limit)[1]
end

local function window_end(limit)
  return find_window(limit)[2]
end
