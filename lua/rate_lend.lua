--[[
  rate_lend - the first slice of a destination lends a slice what a rate that all slices share allows it.

  What is lent and not known to be spent is within the burst, whoever dies. Those of all slices that wait stand in one line, by
  weight: senders, and of deliveries the consumers of a client at a slice as one. Where none is named the slice stands there. Nothing
  is lent before each slice has reported what it has, by this number of `home`.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run                    the server's run id as the caller learnt it when it connected
  ARGV[2] kind      'send', 'send_byte' or 'delivery'  which rate
  ARGV[3] slice     0 to 47                which one asks
  ARGV[4] home      total                  as rate_take returned it there
  ARGV[5] epoch     total                  likewise
  ARGV[6] granted   total                  likewise
  ARGV[7] spent     total                  likewise
  ARGV[8] back      total                  likewise
  ARGV[9] need      0 to 2^52              for the first that waits there; 0 only tells
  ARGV[10] want     0 to 2^52              for all that wait there
  ARGV[11..] sender  up to 1 of id; 0 to 1000; size  session or link that waits, or for which others do, its weight, and what it takes at once while others wait
  Returns {code, home, granted, again_ms, slice...}; granted: total of what this slice was lent: take it there; with OK how much was
           lent now follows again_ms
  Codes    OK, SHORT (the first may go in again_ms; where slices follow, what these have in hand may have to come back: have them
           give it back, and tell; where it is its own, take what was lent), OLD (the report is of another home, or older: take this one, with nothing granted, and tell that),
           ASK (slices that follow have not reported what they have), UNBOUND (no such rate here), UNKNOWN (no such destination)
]]
--- @include "lib/lender"
--- @include "lib/lent_line"
local COLLECT_MS = 100 -- slices are asked for what is in hand at most so often
local MOST_AGAIN_MS = 3600000
local run_id, kind, slice = ARGV[1], ARGV[2], tonumber(ARGV[3])
local home, epoch, granted = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local at = 10 -- the last of ARGV before the sender
local spent, back, need, want = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif not d[kind .. '_rate'] or not d.of_slices then
  return { 'UNBOUND' }
end
read_lender(kind)
local m = lender.members[slice]
if home > lender.home or (home == lender.home and granted > (m and m.epoch == epoch and m.granted or 0)) then
  begin_lending(kind, home, true) -- something was lent that is forgotten here
end
if home ~= lender.home or (m and epoch < m.epoch) then
  save_lender(kind)
  return { 'OLD', int(lender.home), '0', '0' }
end
m = report(kind, slice, epoch, spent, back)
local unknown = {}
for k = 0, d.of_slices - 1 do
  if not lender.members[k] then
    unknown[#unknown + 1] = int(k)
  end
end
if #unknown > 0 then
  save_lender(kind)
  return { 'ASK', int(lender.home), int(m.granted), '0', unpack(unknown) }
end

local rate, burst = d[kind .. '_rate'], d[kind .. '_burst']
local left, others = tokens_left(rate, burst, lender.tat), {}
for k, one in pairs(lender.members) do
  local has = one.granted - one.spent - one.back
  left = left - has
  others[#others + 1] = has > 0 and (k ~= slice or granted < m.granted) and int(k) or nil
end
local code, again, lent = 'OK', 0, 0
if need > 0 then
  local name, weight, part = ARGV[at + 1] or '', (ARGV[at + 2] or 1) + 0, (ARGV[at + 3] or need) + 0
  if kind == 'delivery' or name == '' then
    name = name .. '.' .. slice -- each slice asks for itself
  end
  lent, again = lend_in_line(kind, name, weight, left, need, want, part)
  code, m.granted = again == 0 and 'OK' or 'SHORT', m.granted + lent
end
if code == 'SHORT' and #others > 0 and math.abs(now_ms - lender.asked) >= COLLECT_MS then
  lender.asked = now_ms
else
  others = {}
end
save_lender(kind)
return { code, int(lender.home), int(m.granted), int(math.min(again, MOST_AGAIN_MS)),
  unpack(code == 'OK' and { int(lent) } or others) }
