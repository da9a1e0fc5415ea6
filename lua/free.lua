--[[
  free - take segments that were deleted out of a spool store, and hand their room to who waits for it.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run                  the server's run id as the caller learnt it when it connected
  ARGV[2..] segments  up to 256 of segment  '<encoded destination>/<name>'; those that are not here count for nothing
  Returns {code, segments, bytes}; what this call freed
  Codes    OK, UNKNOWN
]]
--- @include "lib/reap"
--- @include "lib/ledger"
if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
local reaped, bytes, segments = reap_leases(), 0, 0
for i = 2, #ARGV do
  local size = string.match(redis.call('HGET', K_REFS, ARGV[i]) or '', '^%d+')
  if size then
    redis.call('HDEL', K_REFS, ARGV[i])
    bytes, segments = bytes + tonumber(size), segments + 1
  end
end
d.pending_bytes, d.pending_messages = d.pending_bytes - bytes, d.pending_messages - segments
if segments > 0 or reaped then
  hand_over()
  note('purge', int(bytes), int(segments))
  write_ledger('remove', '-', bytes, segments, 0)
end
save_destination()
return { 'OK', int(segments), int(bytes) }
