--- @include "lib/room"
--- @include "lib/wake"
-- What holders give back while others wait: what is idle, and what exceeds their share.
local MOST_FIRST = 16 -- of those who wait, for whom it is seen that they fit beside all that others keep

local function is_above()
  return d.pending_bytes + d.leased_bytes > d.limit_bytes or d.pending_messages + d.leased_messages > d.limit_messages
end

-- Of what a slice has, or of the limit, holders keep their shares. What is owed to a pool others wait for elsewhere. Permits are
-- taken up again and again, so they are shared as the slice has them: else who has one keeps it.
local function kept_of(slice, limit)
  return (d.owes or d.kind == 'gate' and slice < MOST_COUNTED) and math.min(slice, limit) or limit
end

-- Bytes that holders may keep for a weight of 1. A permit that is taken again as it is put back stays for as long as its holder keeps within
-- that. So a waiter that has nothing, and needs more than its own share, would wait for ever: room is left for it.
local function most_kept(bytes, caller, caller_record)
  local most = share(bytes, 1)
  for _, sid in ipairs(d.kind == 'gate' and redis.call('ZRANGE', K_WAITERS, 0, MOST_FIRST - 1) or {}) do
    local s = sid == caller and caller_record or read_session(sid)
    if s and held(s) == 0 then
      most = math.min(most, math.floor(math.max(0, bytes - s.need + s.granted) / math.max(d.weight - s.weight, 1)))
    end
  end
  return most
end

-- Holders give back what they do not use, and what exceeds this times their weight: nothing may stay where it was stopped,
-- and above the limit no more than is left of it beside what is stored. The caller's record is not saved yet.
local function recall(caller, caller_record)
  local most = d.stopped and 0 or 2 ^ 52 -- unlimited
  local bytes, messages = kept_of(d.slice_bytes, d.limit_bytes), kept_of(d.slice_messages, d.limit_messages)
  if is_above() then
    bytes, messages = math.max(0, bytes - d.pending_bytes), math.max(0, messages - d.pending_messages)
  end
  wake_all('recall ' .. int(math.min(most_kept(shadow_most('bytes', bytes), caller, caller_record), most)) .. ' '
    .. int(math.min(share(shadow_most('messages', messages), 1), most)) .. ' ' .. int(d.epoch) .. (d.owes and ' owed' or ''))
end

-- Who waits at a gate alone takes it for the echo of its own call that holders are asked, and its own go on with its permits.
-- Once another waits, it asks again, and learns so.
local function tell_companion(sid)
  local line = redis.call('ZRANGE', K_WAITERS, 0, 1)
  local other = line[1] == sid and line[2] or line[1]
  local s = read_session(other)
  if s and (held(s) > 0 or select(2, held(s)) > 0) then
    wake(other, 'again')
  end
end
