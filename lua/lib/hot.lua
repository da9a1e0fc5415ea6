--- @include "lib/reference"
-- Copies of spooled payloads of a topic, for its subscriptions that are not behind: because of one that is, the others need
-- not go to the store. They are in `refs` under 'p<number>', an eighth of the limit at the most, and each until all
-- subscriptions but one have settled its message. Slices keep none: their pool lends the whole limit.
local MAX_COOLED = 2048

local function cool(seq)
  local bytes = redis.call('HSTRLEN', K_REFS, 'p' .. seq)
  if bytes > 0 then
    redis.call('HDEL', K_REFS, 'p' .. seq)
    redis.call('HINCRBY', K_DESTINATION, 'hot_bytes', -bytes)
  end
  return bytes
end

local function hot_share()
  return d.kind == 'topic' and not d.of_slices and d.limit_bytes < math.huge and math.floor(d.limit_bytes / 8) or 0
end

-- Keeps the payloads in ARGV after `at` for messages from number `first` on, as many as there is room for, and lets go of
-- the oldest for them.
local function keep_hot(at, count, first)
  local kept = redis.call('HMGET', K_DESTINATION, 'hot_bytes', 'hot_from')
  local hot, from, share = tonumber(kept[1] or 0), tonumber(kept[2] or first), hot_share()
  for i = 1, count do
    local body = ARGV[at + i]
    for _ = 1, hot + #body > share and MAX_COOLED or 0 do
      if hot + #body <= share or from >= first then
        break
      end
      hot, from = hot - cool(int(from)), from + 1
    end
    if hot + #body > share then
      break
    end
    hot = hot + #body
    redis.call('HSET', K_REFS, 'p' .. int(first + i - 1), body)
  end
  redis.call('HSET', K_DESTINATION, 'hot_from', int(from), 'hot_bytes', int(hot))
end

-- What a consumer is given for a reference: its copy, where there is one.
local function hot_body(id, body)
  if d.kind == 'topic' then
    return redis.call('HGET', K_REFS, 'p' .. string.match(id, '^%d+')) or body
  end
  return body
end
