--[[
  pin - say over how many slices the keys of a limiter are spread, at one of these; or only read what it knows of that.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id   run      the server's run id as the caller learnt it when it connected
  ARGV[2] version  total    of the pins: odd while keys are on their way, even once they are there; 0 only reads. An older
                            one than is known here changes nothing
  ARGV[3] slices   1 to 48  over which keys are spread
  ARGV[4] before   1 to 48  over which they were before that
  ARGV[5] epoch    total    of this slice, if all that came to it was known in that; 0 while it is not
  Returns {code, epoch, pins}; pins: '<version> <slices> <before> <epoch>' as it is now, empty before the first
  Codes    OK, UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/keyed"
--- @include "lib/wake"
local run_id, version, slices, before, epoch = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: else keys would stay on their way
local known = limiter.pins and limiter.pins.version or 0
if version > known or (version == known and version > 0 and epoch == d.epoch) then
  redis.call('HSET', K_DESTINATION, 'pins', table.concat({ int(version), slices, before, int(epoch) }, ' '))
  wake_all('again')
end
save_limiter()
return { 'OK', int(d.epoch), redis.call('HGET', K_DESTINATION, 'pins') or '' }
