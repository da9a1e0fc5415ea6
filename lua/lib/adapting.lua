--- @include "lib/limits"
-- Where a limit of what is held at once is that follows what its service bears, and what was heard since the last decision.
local COURSE = { 'limit', 'goal', 'calm', 'base', 'worst', 'high', 'rest', 'stale', 'waited' }
local SAMPLE = { 'ok', 'us', 'squares', 'over', 'late', 'busy', 'pressed' }
local TOLD = { 'second', 'all_ok', 'all_over', 'all_ignored', 'changed_ms', 'before', 'of_ok', 'of_over', 'of_us' }
local course -- where the limit is, how it came there, and what was heard since; nothing where none adapts

local function fields_of(names, from)
  local parts = {}
  for i, name in ipairs(names) do
    parts[i] = int(from[name])
  end
  return table.concat(parts, ' ')
end

-- A limit whose settings changed keeps to them at once; one that is new, or was lost, begins at its floor.
local function load_adapting()
  local limit = limiter.adapts
  local reason, numbers = string.match(redis.call('HGET', K_DESTINATION, 'adapting') or '', '^' .. limit.name .. ' (%a+) (.*)$')
  local next_number = string.gmatch(numbers or '', '%d+')
  course = { reason = reason or 'new' }
  for _, names in ipairs({ COURSE, SAMPLE, TOLD }) do
    for _, name in ipairs(names) do
      course[name] = tonumber(next_number() or 0)
    end
  end
  course.limit = math.max(limit.floor * 1000, math.min(course.limit, limit.ceiling * 1000))
  limit.most = math.floor(course.limit / 1000)
end

local function save_adapting()
  course.pressed = (limiter.adapts.pressed or course.pressed == 1) and 1 or 0
  redis.call('HSET', K_DESTINATION, 'adapting', table.concat({ limiter.adapts.name, course.reason, fields_of(COURSE, course),
    fields_of(SAMPLE, course), fields_of(TOLD, course) }, ' '))
end

-- How it adapts, why it changed last, and what was heard so far, for people.
local function adapting_text()
  local limit = limiter.adapts
  return table.concat({ int(limit.floor), int(limit.ceiling), limit.adapt, course.reason, int(math.floor(course.before / 1000)),
    int(course.changed_ms > 0 and math.max(0, limiter.now_ms - course.changed_ms) or 0), int(course.of_ok), int(course.of_over),
    int(course.of_us), int(course.all_ok), int(course.all_over), int(course.all_ignored) }, ' ')
end
