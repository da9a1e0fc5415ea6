--[[
  parted - read what a slice of a limiter has of keys of others, a few at a time, or of one key; changes only its epoch.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id  run           the server's run id as the caller learnt it when it connected
  ARGV[2] slices  1 to 48       over which keys are spread
  ARGV[3] cursor  total         where the look goes on; 0 to begin
  ARGV[4] key     '*' or name   the one that is looked at, wherever it is pinned; '*' for those of others
  Returns {code, cursor, key, record, ...}; a record has '<limit>:<held here>', '<rate>=<us owed>', '<quota>=<used>@<ms of its
           window>' and 'OFF=<ms left>@<ms until the ramp ends>', with ';' between, and of one that is named 'A<slice>_<limit>:<held
           there>' too. The cursor is 0 at the end. After LEARNING follow the ms left
  Codes    OK, LEARNING (not all that is held here is known yet), UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/parting"
local MAX_PARTED = 500
local run_id, slices, cursor, key = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
end
if now_ms < d.learning_until then
  redis.call('HDEL', K_DESTINATION, '-') -- see pin
  save_limiter() -- else each look would begin to learn anew, where nobody else calls
  return { 'LEARNING', int(d.learning_until - now_ms) }
elseif key ~= NO_KEY then
  return { 'OK', '0', key, part_with(key, redis.call('HGET', K_KEYED, key) or '', true) }
end
local own = limiter.pins and limiter.pins.own or 0
local found = redis.call('HSCAN', K_KEYED, cursor, 'COUNT', MAX_PARTED)
local reply = { 'OK', found[1] }
for i = 1, #found[2], 2 do
  if pinned.slice_of(found[2][i], slices) ~= own then
    reply[#reply + 1], reply[#reply + 2] = found[2][i], part_with(found[2][i], found[2][i + 1])
  end
end
return reply
