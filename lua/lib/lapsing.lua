--- @include "lib/queueing"
-- What becomes of holds and waiters whose lease is over.
local MAX_LAPSED = 32

local function end_wait(id, h)
  limiter.refused = limiter.refused + 1
  leave_line(id, h)
  forget_hold(id)
  note('quit', id)
  stir_key(h.key)
end

local function lapse(id)
  local h = read_hold(id)
  if not h then
    leases[id] = false
  elseif h.state == 'W' then
    end_wait(id, h)
  elseif h.strike > 0 and limiter.now_ms - h.strike >= grace(h.ttl) then
    give_back(h, 1)
    forget_hold(id)
    stir_key(h.key)
    note('lapsed', id)
  else
    h.strike = h.strike > 0 and h.strike or limiter.now_ms
    save_hold(id, h)
    leases[id] = int(h.strike + grace(h.ttl))
  end
end

-- Whoever waits asks again each second.
local function stay(id, h)
  leases[id] = int(limiter.now_ms + stale_after(h))
end
