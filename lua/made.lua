--[[
  made - count the destinations that a user of nodes makes, each before it is made, so that there is a bound on them.

  KEYS  those of one user of the namespace
  ARGV[1] mode  'begin', 'done' or 'gone'  'begin' counts what is about to be made, 'done' says that it is there, 'gone'
                                           takes out what is not there, unless it is being made
  ARGV[2] most  total                      how many the user may have
  ARGV[3..] names  up to 1000 of name      of destinations, encoded
  Returns {code, count}
  Codes    OK, FULL (the user has as many, and these would be others; they are not counted)
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/made_key"
local mode, most, code = ARGV[1], tonumber(ARGV[2]), 'OK'
local MAKING_MS = 60000 -- for which one may be on its way: more than a client waits for any call

for i = 3, #ARGV do
  local name, began = ARGV[i], redis.call('ZSCORE', K_MADE, ARGV[i])
  if mode == 'done' then
    redis.call('ZADD', K_MADE, '0', name)
  elseif mode == 'gone' then
    if math.abs(now_ms - (began or 0)) > MAKING_MS then -- also where the clock was set back
      redis.call('ZREM', K_MADE, name)
    end
  elseif began or redis.call('ZCARD', K_MADE) < most then
    redis.call('ZADD', K_MADE, int(now_ms), name)
  else
    code = 'FULL'
  end
end
return { code, int(redis.call('ZCARD', K_MADE)) }
