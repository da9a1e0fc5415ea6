--[[
  secure - write something, so that a WAIT after it on the same connection covers all that was written before.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run  the server's run id as the caller learnt it when it connected
  ARGV[2] session  id   whose messages are meant
  Returns {code, epoch, last}; epoch: what was written in an earlier one may be lost; last: number of the last message that
           this session published, and that is not lost
  Codes    OK, UNKNOWN
]]
--- @include "lib/destination"
local run_id, sid = ARGV[1], ARGV[2]
if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
-- In a new epoch `acquire` may have noted how many numbers are missing: `<sent> 0 <lost> <epoch>`.
local receipt = redis.call('GET', K_RECEIPT) or '0'
local lost, of = string.match(receipt, '^%d+ 0 (%d+) (%d+)')
local last = (tonumber(string.match(receipt, '^%d+')) or 0) - (of == int(d.epoch) and tonumber(lost) or 0)

d.caller = sid
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
save_destination()
redis.call('HSET', K_DESTINATION, 'epoch', int(d.epoch)) -- as it is, yet replicated, and in the file
return { 'OK', int(d.epoch), int(last) }
