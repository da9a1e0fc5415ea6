--- @include "lib/destination"
-- Messages into the stream, each with its number and size as its id, and the moment at which it expires, if it does.

-- Appends `count` of ARGV after `at`; returns whether they are stored: a topic without subscriptions keeps nothing.
local function append(at, count, expires_ms)
  if d.message_ttl_ms and (expires_ms == 0 or d.message_ttl_ms < expires_ms) then
    expires_ms = d.message_ttl_ms
  end
  local stored = d.kind ~= 'topic' or d.subscriptions > 0
  local seq, largest = d.message_seq, d.largest_bytes
  for i = 1, count do
    local body = ARGV[at + i]
    seq = seq + 1
    if stored then
      local id = string.format('%d-%d', seq, #body)
      if expires_ms > 0 then
        redis.call('XADD', K_MESSAGES, id, 'm', body, 'x', int(now_ms + expires_ms))
        redis.call('ZADD', K_EXPIRY, int(now_ms + expires_ms), id)
      else
        redis.call('XADD', K_MESSAGES, id, 'm', body)
      end
      if d.subscriptions > 1 then
        redis.call('HSET', K_REFS, int(seq), int(d.subscriptions))
      end
    end
    if #body > largest then
      largest = #body
    end
  end
  d.message_seq, d.largest_bytes = seq, largest
  return stored
end
