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

local MOST_HUNGRY = 128 -- of a topic that are looked at
-- Wake as many hungry consumers of a queue as there are messages, at most 16, and the links that copy each, which come
-- first among them. Of a topic as many of each subscription, or of `sub` alone: where none is shared, or too many are hungry to look at
-- each, one word is for all.
local function wake_hungry(messages, sub)
  if d.kind == 'topic' then
    local hungry = d.consumers > d.subscriptions and redis.call('ZRANGE', K_HUNGRY, 0, MOST_HUNGRY)
    if not hungry or #hungry > MOST_HUNGRY then
      if redis.call('DEL', K_HUNGRY) == 1 then
        wake_all('ready')
      end
      return
    end
    local woken = {}
    for i, record in ipairs(hungry[1] and redis.call('HMGET', K_CONSUMERS, unpack(hungry)) or {}) do
      local of = string.match(record or '', '^sub=(%S+)') or ''
      local before = woken[of] or 0
      if before < messages and (not sub or of == sub) then
        woken[of] = before + 1
        redis.call('ZREM', K_HUNGRY, hungry[i])
        wake(session_of(hungry[i]), 'ready', hungry[i])
      end
    end
    return
  end
  local popped = redis.call('ZPOPMIN', K_HUNGRY, int(math.min(messages, 16) + math.max(0, d.subscriptions - 1)))
  for i = 1, #popped, 2 do
    wake(session_of(popped[i]), 'ready', popped[i])
  end
end
