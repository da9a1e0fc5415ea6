--[[
  place - the slice of a destination that a session is to send to: each slice in turn.

  A repeated call passes a slice over, and does no harm. A destination without slices says 0, its own.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run  the server's run id as the caller learnt it when it connected
  Returns {code, slice}
  Codes    OK, UNKNOWN
]]
--- @include "lib/destination"
if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN', 0 }
end
local has = redis.call('HMGET', K_DESTINATION, 'slices', 'placed')
local slices, placed = tonumber(has[1] or 1), tonumber(has[2] or 0)
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: whoever opens is not to fail here
if slices > 1 then
  redis.call('HSET', K_DESTINATION, 'placed', int((placed + 1) % slices))
end
save_destination()
return { 'OK', placed % slices }
