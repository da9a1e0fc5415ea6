--[[
  spent - the segments of a destination of which no message is left, and whether references find room; changes nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1] after  total     as the last call returned it, 0 at first
  ARGV[2] most   1 to 256  how many segments to look at
  ARGV[3] session  id      that asks for room, beside what it holds; '-' for nobody
  Returns {code, after, segments, {segment, ...}, room}; after: to go on with, 0 when all were looked at; segments:
           that it has; room: for how many references there is some, about
  Codes    OK
]]
--- @include "lib/session"
--- @include "lib/references"
local after, most, read = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), 256), read_destination()
local rows, out = redis.call('ZRANGE', K_SPOOLED, int(after), int(after + most - 1), 'WITHSCORES'), {}
for i = 1, #rows, 2 do
  local first = string.match(redis.call('HGET', K_REFS, rows[i]) or '', '^%d+')
  if not first or #redis.call('XRANGE', K_MESSAGES, first, rows[i + 1], 'COUNT', 1) == 0 then
    out[#out + 1] = rows[i]
  end
end
local s = read and read_session(ARGV[3])
local held_m = s and select(2, held(s)) or 0
return { 'OK', int(#rows == 2 * most and after + most or 0), redis.call('ZCARD', K_SPOOLED), out, int(read and reference_room(read, held_m) or 0) }
