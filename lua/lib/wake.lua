--- @include "lib/keys"
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
