--[[
  note - keep short notes of a namespace, each gone when it is not written again for a while.

  KEYS  notes of the namespace, of one sort
  ARGV[1] keep_ms     ms  ms after which a note is gone that was not written again
  ARGV[2..] name, text  up to 128 of text to 2000; text to 100000  an empty text takes a note away
  Returns {code}
  Codes    OK
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/notes_key"
local keep_ms = tonumber(ARGV[1])
local MAX_NOTES = 64 -- notes that one call looks at, whether they are over

for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', K_NOTES, ARGV[i])
  else
    redis.call('HSET', K_NOTES, ARGV[i], 'seen=' .. int(now_ms) .. ' ' .. ARGV[i + 1])
  end
end
local found = redis.call('HSCAN', K_NOTES, 0, 'COUNT', MAX_NOTES)[2]
for i = 1, #found, 2 do
  local seen = tonumber(string.match(found[i + 1], '^seen=(%d+) '))
  if math.abs(now_ms - seen) > keep_ms then -- also where the clock was set back
    redis.call('HDEL', K_NOTES, found[i])
  end
end
redis.call('PEXPIRE', K_NOTES, int(keep_ms))
return { 'OK' }
