--- @include "lib/limiter"
--- @include "lib/ledger"
-- Refusals are counted by what refused them, and go to the ledger with its next entry, or after a second: that many that are refused
-- leave one entry a second.
local REFUSED_MS = 1000
local refusals = 0

local function count_refusal(limit, whose)
  local of, first = limit .. ':' .. whose .. ':', limiter.unsaid == ''
  local before, times, after = string.match(';' .. limiter.unsaid, '^(.*;)' .. of .. '(%d+)(.*)$')
  if times then
    limiter.unsaid = string.sub(before, 2) .. of .. int(times + 1) .. after
  else
    limiter.unsaid = (first and int(limiter.now_ms) or limiter.unsaid) .. ';' .. of .. '1'
  end
  refusals = refusals + 1
end

local function note_refusals()
  local since, counts = string.match(limiter.unsaid, '^(%d+);(.*)$')
  if since and (#notes > 0 or limiter.now_ms - since >= REFUSED_MS) then
    for count in string.gmatch(counts, '[^;]+') do
      note('refused', count)
    end
    redis.call('HDEL', K_DESTINATION, 'unsaid')
  elseif refusals > 0 then
    redis.call('HSET', K_DESTINATION, 'unsaid', limiter.unsaid)
  end
end
