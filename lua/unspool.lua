--[[
  unspool - forget segments that are deleted from their store, for their messages are gone; references have room again.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run                  the server's run id as the caller learnt it when it connected
  ARGV[2..] segments  up to 256 of segment
  Returns {code, bytes}; bytes: of those that were forgotten
  Codes    OK, UNKNOWN
]]
--- @include "lib/spooled"
--- @include "lib/wake"
if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
local bytes = 0
for i = 2, #ARGV do
  bytes = bytes + forget_segment(ARGV[i])
end
save_destination()
if bytes > 0 then
  wake_all('references')
end
return { 'OK', int(bytes) }
