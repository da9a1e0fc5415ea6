--- @include "lib/attach"
-- As settings change: messages that keys had in turn stay so when the rule `fair_by` goes, and go before all that comes then.
local function keep_turns()
  if redis.call('HEXISTS', K_DESTINATION, 'fair_by') == 1 then
    redis.call('HDEL', K_DESTINATION, 'fair_left')
  elseif redis.call('EXISTS', K_FAIR) == 1 then
    redis.call('HSET', K_DESTINATION, 'fair_left', 'yes')
  else
    redis.call('DEL', K_ROTA)
    redis.call('HDEL', K_DESTINATION, 'fair_left', 'sorted')
  end
end

-- Reads the destination with the rules that it has now.
local function read_changed()
  keep_turns()
  redis.call('HSET', K_DESTINATION, 'rules', name_rules())
  d = read_destination()
  if d.fair_by then
    open_subscription('queue', 1) -- for which messages are sorted
  end
end
