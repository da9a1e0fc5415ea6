--- @include "lib/next_in_turn"
-- What a slice says behind `beside` of the messages in `out`, ids and bodies: see settle. Nothing of what it gives again.
local function say_given(out, beside, again)
  local count = #out / 2
  if not d.of_slices then
    return beside
  elseif d.fair then
    return beside .. '+' .. int(d.turned or 0)
  elseif count == 0 or again or beside == '1' then
    return beside
  end
  local left = math.min(d.pending_messages - count, d.message_seq - tonumber(string.match(out[#out - 1], '^(%d+)')))
  return left > 0 and beside .. '*' .. int(math.ceil(count * TURN / (count + left))) or beside
end
