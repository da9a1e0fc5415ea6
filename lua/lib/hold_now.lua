--- @include "lib/passing"
-- What is held from now on; and of the holds of one call that are alike only the first is looked at closely.
local admitted = {} -- by key: the hold of this call that was admitted last

local function count_in(id, h)
  limiter.admitted = limiter.admitted + 1
  by_band.count(h.band, 2, 1)
  charge_shadows(id, h.key, h.amounts)
  take_amounts(h.key, h.amounts)
end

local function hold_now(id, h, from_ms)
  h.state, h.since, h.ticket, h.band = 'H', now_ms, 0, band_of(h.amounts)
  h.amounts = h.band == USUAL and h.amounts or without_band(h.amounts)
  count_in(id, h)
  renew_hold(id, h, h.ttl, from_ms)
  save_hold(id, h)
  shift_key(h.key)
  note('held', id, of_ledger(h.key), for_ledger(h.amounts))
end

-- `text` is what its caller asked for.
local function remember_admitted(id, h, text)
  admitted[h.key] = { h = h, text = text, written = texts[id], lease = leases[id],
    noted = ':' .. of_ledger(h.key) .. ':' .. for_ledger(h.amounts) }
end

-- Admits one that is like one before it: what that is, and how it is written, is known. Returns whether it is held now.
local function admit_alike(like, id, text, ttl_ms)
  if like.text ~= text or like.h.ttl ~= ttl_ms or texts[id] ~= false or d.blocked > 0 or not has_room_for_holds()
    or what_binds(like.h.key, like.h.amounts) ~= 0 then
    return false
  end
  count_in(id, like.h)
  store_hold(id, like.written)
  leases[id] = like.lease
  notes[#notes + 1] = 'held:' .. id .. like.noted
  return true
end
