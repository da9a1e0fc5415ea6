--- @include "lib/adapting_step"
-- What sessions say of holds that ended, summed up until the next decision about the limit that adapts.
local MOST_SUMMED = 2251799813685248 -- of times; sums of two stay exact
local LONGEST_HOLD_US = 3600000000

-- Adds what a session heard of its holds, or, of a single hold that is there, how it ended: then its time is known here.
adapting.hear = function(id, text)
  local c = limiter.course
  local s = { ok = 0, us = 0, squares = 0, over = 0, late = 0, busy = 0, ignored = 0 }
  for _, amount in ipairs(amounts_of(text)) do
    if s[amount[1]] then
      s[amount[1]] = math.min(amount[3], MOST_SUMMED)
    end
  end
  local h = s.us + s.late == 0 and read_hold(id)
  if s.us + s.late == 0 and s.ok + s.over > 0 and not h then
    return 'gone' -- it is held at another slice, where its time is not this limit's: its part is here
  end
  if not c then
    return 'ok'
  end
  if h and h.state == 'H' then
    local us = math.min(math.max(0, now_ms - h.since) * 1000, LONGEST_HOLD_US)
    local held = string.match(',' .. h.amounts, ',' .. limiter.adapts.name .. ':(%d+)') or 0
    s.us, s.late = s.ok > 0 and us or 0, s.over > 0 and us or 0
    if s.ok > 0 then
      s.squares, s.busy = math.floor(us / 64) * math.floor(us / 64), math.min(us / 1000 * held, MOST_SUMMED)
    end
  end
  s.ok, s.over, s.ignored = math.min(s.ok, 1000000), math.min(s.over, 1000000), math.min(s.ignored, 1000000)
  s.us, s.late = math.min(s.us, s.ok * LONGEST_HOLD_US), math.min(s.late, s.over * LONGEST_HOLD_US)
  for _, name in ipairs({ 'ok', 'us', 'squares', 'over', 'late', 'busy' }) do
    c[name] = math.min(c[name] + s[name], MOST_SUMMED)
  end
  c.all_ok, c.all_over = math.min(c.all_ok + s.ok, MOST), math.min(c.all_over + s.over, MOST)
  c.all_ignored = math.min(c.all_ignored + s.ignored, MOST)
  return 'ok'
end

-- Whoever comes first in a second decides, with what was heard until then.
adapting.step = function()
  local c = limiter.course
  local second, before = math.floor(limiter.now_ms / 1000), c.limit
  if second <= c.second then
    return
  end
  c.second = second
  if c.ok + c.over == 0 then
    return
  end
  local heard = adapting.fields(adapting.of_sample, c)
  local reason = adapting.decide(c)
  local limit = limiter.adapts
  note('adapted', limit.name, limit.adapt .. '.' .. adapting.rules, int(limit.floor), int(limit.ceiling), int(before), reason, heard,
    adapting.fields(adapting.of_course, c) .. ' ' .. adapting.fields(adapting.of_gradient, c))
  if c.limit ~= before then
    c.reason, c.before, c.changed_ms = reason, before, limiter.now_ms
    c.of_ok, c.of_over = c.ok, c.over
    c.of_us = math.floor((c.us + c.late) / (c.ok + c.over))
  end
  limit.most = math.floor(c.limit / 1000)
  if reason ~= 'few' then
    for _, name in ipairs(adapting.of_sample) do
      c[name] = 0
    end
  end
end
