--[[
  users - change users of a namespace: over the version that their author saw, or put all back where Redis lost them.

  KEYS  the namespace's users
  ARGV[1] expected    total            the version that must be in force, 0 for none
  ARGV[2] version     'next' or total  'next' draws a new one; else all had this one, larger than `expected`, and Redis
                                       lost them
  ARGV[3..] name, text  up to 100000 of text to 1000; bytes to 100000  of each user that changes, of all where Redis
                                       lost them; an empty text removes the user
  Returns {code, version in force}
  Codes    OK (they are in force, now or already), CONFLICT (another version is in force; nothing was changed)
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/users_key"
local expected, lost = tonumber(ARGV[1]), tonumber(ARGV[2])

local current = tonumber(redis.call('HGET', K_USERS, '!version') or 0)
if current ~= expected or (lost and lost <= current) then
  local same = current > expected
  for i = 3, #ARGV, 2 do
    same = same and (redis.call('HGET', K_USERS, ARGV[i]) or '') == ARGV[i + 1]
  end
  return { same and 'OK' or 'CONFLICT', int(current) } -- a repeated call, or one that came too late
end
-- From the clock: a master that took over draws none that the one before gave to others, and newer ones are higher.
local version = lost or math.max(current + 1, now_ms)
if lost then
  redis.call('DEL', K_USERS) -- allowed under OOM, and so is what follows: somebody can always be locked out
end
redis.call('HDEL', K_USERS, '-')
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', K_USERS, ARGV[i])
  else
    redis.call('HSET', K_USERS, ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', K_USERS, '!version', int(version))
redis.call('PUBLISH', string.gsub(K_USERS, ':users$', ':wake'), 'users ' .. int(version))
return { 'OK', int(version) }
