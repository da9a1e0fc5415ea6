--- @include "lib/session"
-- The line of those whom a rate keeps waiting, without one of them, and where it stood.
local function without_sender(text, sid)
  local from, to = string.find(text, ' @' .. sid .. ' ', 1, true)
  if not from then
    return text
  end
  local _, last = string.find(text, '^%d+ %d+ %d+', to + 1)
  return string.sub(text, 1, from - 1) .. string.sub(text, last + 1), from
end

-- Takes a session that ends out of that line: what it needs is kept no longer.
local function leave_send_line(sid)
  local text = (d.send_rate or d.send_byte_rate) and redis.call('HGET', K_DESTINATION, 'send_line') or ''
  local rest, from = without_sender(text, sid)
  if not from then
    return
  end
  d.left_send_line = d.left_send_line or {}
  d.left_send_line[sid] = true -- it may be read already
  if string.find(rest, '@', 1, true) then
    redis.call('HSET', K_DESTINATION, 'send_line', rest)
  else
    redis.call('HDEL', K_DESTINATION, 'send_line')
  end
end
