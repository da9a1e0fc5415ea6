--- @include "lib/deliver"
-- What a link has in hand at its source: entries that it was given, of which the first go that fit.

local function in_hand(sub, cid, after, most)
  local reply = redis.call('XREADGROUP', 'GROUP', sub, cid, 'COUNT', int(most), 'STREAMS', K_MESSAGES,
    int(after) .. ANY_SIZE)
  return reply and reply[1] and reply[1][2] or {}
end

local function within_bytes(entries, most_b)
  local wanted, bytes = {}, 0
  for i, entry in ipairs(entries) do
    local size = size_of(entry[1])
    if not entry[2] or (i > 1 and bytes + size > most_b) then
      break
    end
    wanted[i], bytes = entry, bytes + size
  end
  return wanted, bytes
end
