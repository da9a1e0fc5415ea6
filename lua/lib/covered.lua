--- @include "lib/destination"
-- Of credit that was granted before a limit bound, or was lowered: whether it covers that much more. All that is stored
-- stays within the limit, but for a message that goes above it alone, or with a ticket.
local function is_covered(sid, s, bytes, count, limit_bytes)
  local fits = d.pending_messages + count <= math.min(d.limit_messages, d.pool_messages)
  local alone = d.oversize == 'allow-one' and not d.of_slices and d.pending_bytes == 0 and count == 1
  if fits and (alone or d.pending_bytes + bytes <= math.min(limit_bytes, d.pool_bytes)) then
    return true
  end
  local beside = d.overdrawn_bytes or d.overdrawn_messages -- lent with a ticket, whatever else is there
  local one = not d.of_slices or beside or (count == 1 and d.pending_bytes == 0) -- for whom it was lent may have gone, and several come
  return one and redis.call('HGET', K_DESTINATION, 'ticket') == sid .. ' ' .. int(s.granted)
end
