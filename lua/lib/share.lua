--- @include "lib/clock"
-- What a pool holds of one at another site, in totals as a destination's slice: that is its limit. `heard` is when the other
-- site was heard of last, `most` what this one can ever have there.
local SHARE_OWED_MS = 3000 -- as of slices
local SHARE = 'granted=%d returned=%d epoch=%d there=%d owed=%d asked=%d heard=%d most=%d of=%s'
local SHARE_PATTERN = '^granted=(%d+) returned=(%d+) epoch=(%d+) there=(%d+) owed=(%d+) asked=(%d+) heard=(%d+) most=(%d+) of=(.*)$'

-- False where the pool is, and was, no part of another.
local function read_share(text, of)
  if not text and of == '' then
    return false
  end
  text = text or string.format(SHARE, 0, 0, 0, 0, 0, 0, 0, 0, of)
  local granted, returned, epoch, there, owed, asked, heard, most, whose = string.match(text, SHARE_PATTERN)
  local s = { granted = granted + 0, returned = returned + 0, epoch = epoch + 0, there = there + 0, owed = owed + 0,
    asked = asked + 0, heard = heard + 0, most = most + 0, of = whose }
  if math.abs(now_ms - s.asked) >= SHARE_OWED_MS then
    s.owed = s.returned -- a debt that nobody asks for any more is none
  end
  return s
end

local function share_text(s)
  return string.format(SHARE, s.granted, s.returned, s.epoch, s.there, s.owed, s.asked, s.heard, s.most, s.of)
end

-- After a loss of state the other site knows better: nothing of it is granted until that was asked.
local function share_left(s, of, epoch)
  return s.of == of and s.epoch == epoch and s.granted - math.max(s.returned, s.owed) or 0
end
