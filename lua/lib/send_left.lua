--- @include "lib/session"
-- Takes a session that ends out of the line of those whom the rate keeps waiting: what it needs is kept no longer.
local function leave_send_line(sid)
  local text = (d.send_rate or d.send_byte_rate) and redis.call('HGET', K_DESTINATION, 'send_line')
  local from, to = string.find(text or '', ' ' .. sid .. ' ', 1, true)
  if not from then
    return
  end
  d.left_send_line = d.left_send_line or {}
  d.left_send_line[sid] = true -- it may be read already
  local _, last = string.find(text, '^%S+ %S+ %S+ %S+', to + 1)
  local rest = string.sub(text, 1, from - 1) .. string.sub(text, last + 1)
  if rest == '' then
    redis.call('HDEL', K_DESTINATION, 'send_line')
  else
    redis.call('HSET', K_DESTINATION, 'send_line', rest)
  end
end
