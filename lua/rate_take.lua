--[[
  rate_take - take in hand what the first slice of a destination lent of a rate that all slices share, or give it back.

  All amounts are totals, so a repeated or late call changes nothing. What was lent by a first slice that has lost state since
  is in hand no more, nor is what this slice had before it lost some.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run                    the server's run id as the caller learnt it when it connected
  ARGV[2] kind     'send', 'send_byte' or 'delivery'  which rate
  ARGV[3] home     total                  number of what the first slice knows, as rate_lend returned it; 0 only looks
  ARGV[4] epoch    total                  of this slice, which `granted` is for; 0 where nothing was granted
  ARGV[5] granted  total                  that the first slice granted in all
  ARGV[6] mode     'keep' or 'back'       'back' gives back what has been in hand for a while and is not spent
  ARGV[7..] sender  up to 1 of id; size   session or link that this is for, and how much was lent for it: that is kept for it for a while
  Returns {code, home, epoch, granted, spent, back, own}; own: what the sender may send of it; tell the first slice
  Codes    OK, UNKNOWN (no such destination), UNBOUND (it has no such rate, or no slices: nothing was done)
]]
--- @include "lib/lent_rate"
local run_id, kind, home, epoch, granted = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local at = 6 -- the last of ARGV before the sender
local sid, amount = ARGV[at + 1], (ARGV[at + 2] or 0) + 0

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif not d[kind .. '_rate'] or not d.of_slices then
  return { 'UNBOUND' }
end
local h, changed = read_hand(kind), false
if home > h.home then
  h, changed = empty_hand(home), true
end
if home == h.home and epoch == h.epoch and granted > h.granted then
  h.granted, h.at, changed = granted, now_ms, true
end
if ARGV[6] == 'back' and h.granted > h.spent + h.back and math.abs(now_ms - h.at) >= KEPT_MS then
  h.back, changed = h.granted - h.spent, true
end
if changed then
  save_hand(kind, h)
end
if amount > 0 and home == h.home and epoch == h.epoch then
  local _, own, rest = read_kept(kind, sid)
  save_kept(kind, rest, sid, own + amount)
end
save_destination()
return { 'OK', int(h.home), int(h.epoch), int(h.granted), int(h.spent), int(h.back), int(in_hand_of(kind, h, sid or '')) }
