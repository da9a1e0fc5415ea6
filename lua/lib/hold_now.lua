--- @include "lib/passing"
-- What is held from now on.

local function count_in(id, h)
  local count = pinned.has_part(h.amounts) and 0 or 1
  limiter.admitted = limiter.admitted + count
  by_band.count(h.band, 2, count)
  charge_shadows(id, h.key, h.amounts)
  take_amounts(h.key, h.amounts, 1)
end

local function hold_now(id, h, from_ms)
  h.state, h.since, h.ticket, h.band = 'H', now_ms, 0, band_of(h.amounts)
  h.amounts = h.band == USUAL and h.amounts or without_band(h.amounts)
  count_in(id, h)
  renew_hold(id, h, h.ttl, from_ms)
  save_hold(id, h)
  shift_key(h.key)
  if K_LIMITED and h.band ~= USUAL then
    note('band', id, h.band) -- of one that did not wait, nothing else says it there
  end
  note('held', id, of_ledger(h.key), for_ledger(h.amounts))
end
