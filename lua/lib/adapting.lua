--- @include "lib/limits"
-- Where a limit of what is held at once is that follows what its service bears, and what was heard since the last decision.
-- One table for all of it: a function of Lua has room for 200 local names. `limiter.course`: nothing where no limit adapts.
local adapting = {
  rules = 4, -- the version of how it is decided: an audit proves the steps of the one that it knows
  few = { start = 20, dip = 60, usual = 10 }, -- finished holds whose mean time says something, by where it is
  growth = { 8, 40, 100 }, -- thousandths above the last good limit, by the seconds since then: of AIMD
  of_course = { 'limit', 'goal', 'calm', 'base', 'worst', 'high', 'rest', 'stale', 'waited' },
  of_gradient = { 'doubt', 'evidence', 'known' }, -- last in the state, as older scripts do not know them
  of_sample = { 'ok', 'us', 'squares', 'over', 'late', 'busy', 'pressed' },
  for_people = { 'second', 'all_ok', 'all_over', 'all_ignored', 'changed_ms', 'before', 'of_ok', 'of_over', 'of_us' },
}

adapting.fields = function(names, from)
  local parts = {}
  for i, name in ipairs(names) do
    parts[i] = int(from[name])
  end
  return table.concat(parts, ' ')
end

-- A limit whose settings changed keeps to them at once; one that is new, or was lost, begins at its floor.
adapting.load = function()
  local limit = limiter.adapts
  local reason, numbers = string.match(redis.call('HGET', K_DESTINATION, 'adapting') or '', '^' .. limit.name .. ' (%a+) (.*)$')
  local next_number = string.gmatch(numbers or '', '%d+')
  local c = { reason = reason or 'new' }
  limiter.course = c
  for _, names in ipairs({ adapting.of_course, adapting.of_sample, adapting.for_people, adapting.of_gradient }) do
    for _, name in ipairs(names) do
      c[name] = tonumber(next_number() or 0)
    end
  end
  c.limit = math.max(limit.floor * 1000, math.min(c.limit, limit.ceiling * 1000))
  limit.most = math.floor(c.limit / 1000)
end

adapting.save = function()
  local c = limiter.course
  c.pressed = (limiter.adapts.pressed or c.pressed == 1) and 1 or 0
  redis.call('HSET', K_DESTINATION, 'adapting', table.concat({ limiter.adapts.name, c.reason,
    adapting.fields(adapting.of_course, c), adapting.fields(adapting.of_sample, c), adapting.fields(adapting.for_people, c),
    adapting.fields(adapting.of_gradient, c) }, ' '))
end

-- How it adapts, why it changed last, and what was heard so far, for people.
adapting.text = function()
  local c = limiter.course
  local limit = limiter.adapts
  return table.concat({ int(limit.floor), int(limit.ceiling), limit.adapt, c.reason, int(math.floor(c.before / 1000)),
    int(c.changed_ms > 0 and math.max(0, limiter.now_ms - c.changed_ms) or 0), int(c.of_ok), int(c.of_over),
    int(c.of_us), int(c.all_ok), int(c.all_over), int(c.all_ignored) }, ' ')
end
