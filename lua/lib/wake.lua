--- @include "lib/destination"
-- Hints only: a lost one costs a poll. Channels carry the destination's hash tag.
local function wake(sid, ...)
  redis.call('PUBLISH', K_DESTINATION .. ':wake:' .. sid, table.concat({ ... }, ' '))
end

local function wake_all(word)
  redis.call('PUBLISH', K_DESTINATION .. ':wake', word)
end

local function session_of(cid)
  return string.match(cid, '^(.*)%.%d+$')
end

-- Wake as many hungry consumers of a queue as there are messages, at most 16, and the links that copy each, which come
-- first among them; a topic tells everybody at once.
local function wake_hungry(messages)
  if d.kind == 'topic' then
    if redis.call('DEL', K_HUNGRY) == 1 then
      wake_all('ready')
    end
    return
  end
  local popped = redis.call('ZPOPMIN', K_HUNGRY, int(math.min(messages, 16) + math.max(0, d.subscriptions - 1)))
  for i = 1, #popped, 2 do
    wake(session_of(popped[i]), 'ready', popped[i])
  end
end
