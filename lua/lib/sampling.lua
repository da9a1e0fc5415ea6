--- @include "lib/deciding"
-- What sessions say of holds that ended, summed up until the next decision about the limit that adapts.
local MOST_SUMMED = 2251799813685248 -- of times; sums of two stay exact
local LONGEST_HOLD_US = 3600000000

-- Adds what a session heard of its holds, or, of a single hold that is there, how it ended: then its time is known here.
local function take_sample(id, text)
  if not course then
    return 'ok'
  end
  local s = { ok = 0, us = 0, squares = 0, over = 0, late = 0, busy = 0, ignored = 0 }
  for _, amount in ipairs(amounts_of(text)) do
    if s[amount[1]] then
      s[amount[1]] = math.min(amount[3], MOST_SUMMED)
    end
  end
  local h = s.us + s.late == 0 and read_hold(id)
  if h and h.state == 'H' then
    local us = math.min(math.max(0, now_ms - h.since) * 1000, LONGEST_HOLD_US)
    local held = string.match(',' .. h.amounts, ',' .. limiter.adapts.name .. ':(%d+)') or 0
    s.us, s.late = s.ok > 0 and us or 0, s.over > 0 and us or 0
    s.squares, s.busy = s.ok > 0 and math.floor(us / 64) * math.floor(us / 64) or 0, s.ok > 0 and math.min(us / 1000 * held, MOST_SUMMED) or 0
  end
  s.ok, s.over, s.ignored = math.min(s.ok, 1000000), math.min(s.over, 1000000), math.min(s.ignored, 1000000)
  s.us, s.late = math.min(s.us, s.ok * LONGEST_HOLD_US), math.min(s.late, s.over * LONGEST_HOLD_US)
  for _, name in ipairs({ 'ok', 'us', 'squares', 'over', 'late', 'busy' }) do
    course[name] = math.min(course[name] + s[name], MOST_SUMMED)
  end
  course.all_ok, course.all_over = math.min(course.all_ok + s.ok, MOST), math.min(course.all_over + s.over, MOST)
  course.all_ignored = math.min(course.all_ignored + s.ignored, MOST)
  return 'ok'
end

-- Whoever comes first in a second decides, with what was heard until then.
local function adapt()
  local second, before = math.floor(limiter.now_ms / 1000), course.limit
  if second <= course.second then
    return
  end
  course.second = second
  if course.ok + course.over == 0 then
    return
  end
  local heard = fields_of(SAMPLE, course)
  local reason = decide(course)
  local limit = limiter.adapts
  note('adapted', limit.name, limit.adapt, int(limit.floor), int(limit.ceiling), int(before), reason, heard, fields_of(COURSE, course))
  if course.limit ~= before then
    course.reason, course.before, course.changed_ms = reason, before, limiter.now_ms
    course.of_ok, course.of_over, course.of_us = course.ok, course.over, math.floor((course.us + course.late) / (course.ok + course.over))
  end
  limit.most = math.floor(course.limit / 1000)
  if reason ~= 'few' then
    for _, name in ipairs(SAMPLE) do
      course[name] = 0
    end
  end
end
