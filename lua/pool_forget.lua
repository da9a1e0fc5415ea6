--[[
  pool_forget - end the account of a member whose destination is gone; what it held is free for others.

  KEYS  the pool's, as lib/pool_keys
  ARGV[1] run_id  run    the server's run id as the caller learnt it when it connected
  ARGV[2] member  name   encoded name of the destination
  ARGV[3] epoch   total  the newest of the destination that the caller knows to be gone; where a later one was here,
                         nothing is done
  Returns {code, pool_epoch, bytes, {member, epoch, granted, returned, ...}}; bytes that were freed; members that were served
  Codes    OK, UNKNOWN (no such pool, or not a member), STALE (the destination is back)
]]
--- @include "lib/serve"
local run_id, member, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])

if not load_pool(run_id) then
  return { 'UNKNOWN', '0', '0', {} }
end
local m = read_member(member)
if not m.known then
  return { 'UNKNOWN', int(p.epoch), '0', {} }
elseif m.epoch > epoch then
  return { 'STALE', int(p.epoch), '0', {} }
end
redis.call('HDEL', K_MEMBERS, member) -- allowed under OOM, and so is all that follows
redis.call('ZREM', K_LINE, member)
p.granted = p.granted - (m.granted - m.returned)
serve_line()
save_pool()
return { 'OK', int(p.epoch), int(m.granted - m.returned), served }
