--[[
  topic - enter a topic into its namespace's index, or take it out; end wildcard entries whose holders are gone.

  KEYS  the namespace's, as lib/index
  ARGV[1] name     bytes to 2000  of the topic, encoded
  ARGV[2] present  0 to 1         '1' enters it, '0' takes it out
  Returns {code}
  Codes    OK, CREATED (it was not there, and wildcard consumers hear of it), INVALID (no client spells a name so; anything
           can be taken out)
]]
--- @include "lib/index"
local name = ARGV[1]

if ARGV[2] ~= '0' and not is_name(name) then
  return { 'INVALID' }
end
local code = 'OK'
if ARGV[2] == '0' then
  redis.call('SREM', K_TOPICS, name)
elseif redis.call('SADD', K_TOPICS, name) == 1 then
  redis.call('PUBLISH', string.gsub(K_TOPICS, ':topics$', ':wake'), 'created ' .. name)
  code = 'CREATED'
end
end_lapsed()
return { code }
