--- @include "lib/lender"
--- @include "lib/sendline"
-- The first slice has the senders of all slices in one line, of each rate that it lends, and the consumers in one of deliveries.
local EPSILON = 1e-6 -- of a token: what rounding to microseconds may take
local MOST_DUE_MS = 1000 -- after which a sender asks again at the latest, or is waited for no more

-- How much of what is left goes to a sender now, and where that is nothing, in how many ms it may come: then there is enough for
-- all before it, and for its part.
local function lend_in_line(kind, sid, weight, left, need, want, part)
  local rate, burst = d[kind .. '_rate'], d[kind .. '_burst']
  local first, us = math.min(need, burst), 1000000 / rate
  read_send_line(sid, kind .. '_line')
  left = left - kept_before(send_line.turn, lender.tat <= now_us) / us
  if left + EPSILON >= first then
    local most = #send_line > 0 and math.max(need, part) or want
    local more = need > burst and need or math.min(most, math.floor(left + EPSILON))
    save_send_line(sid, math.min(more * us, MOST_OWED_US), weight, 0, 0)
    return more, 0
  end
  part = math.max(first, math.min(part, math.floor(burst / 2)))
  local again = math.max(1, math.ceil((part - left) * 1000 / rate))
  save_send_line(sid, 0, weight, math.ceil(math.min(part * us, MOST_OWED_US)), math.min(again, MOST_DUE_MS))
  return 0, again
end
