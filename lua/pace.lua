--[[
  pace - read what a consumer of a destination with slices settled at one of them, what it holds there and what waits for it.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run      the server's run id as the caller learnt it when it connected
  ARGV[2] session  id       of the caller
  ARGV[3] number   1 to 64  k of the consumer '<session>.<k>', its part here
  Returns {code, epoch, now_ms, settled, held, waiting}; waiting: messages that wait for its subscription, where a rule asks for that
  Codes    OK, UNKNOWN, EXPIRED (there is no such consumer)
]]
--- @include "lib/backlog"
local run_id, cid = ARGV[1], ARGV[2] .. '.' .. int(tonumber(ARGV[3]))

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
local c = read_consumer(cid)
if not c or redis.call('ZSCORE', K_ORPHANS, cid) then
  return { 'EXPIRED', int(d.epoch) }
end
save_destination()
local waiting = d.slow_multiple and waiting_for(c.sub) or 0
return { 'OK', int(d.epoch), int(now_ms), int(c.settled), int(c.delivered - c.settled), int(waiting) }
