--- @include "lib/holding"
--- @include "lib/ledger"
-- What waits, was admitted and was shed, by band: '<band> <waiting> <admitted> <shed>;...'. Of the usual band only what was shed
-- is kept: the rest is what the others leave of all. Nothing is read, nor written, where no band is named.
local K_LIMITED_LEDGER = KEYS[28] -- of the gate or bucket that this limiter is beside; older callers do not name it
local by_band = {}

-- `what`: 1 waits, 2 was admitted, 3 was shed.
by_band.count = function(band, what, number)
  if band ~= USUAL or what == 3 then
    limiter.by_band = limiter.by_band or {}
    local change = limiter.by_band[band] or { 0, 0, 0 }
    change[what] = change[what] + number
    limiter.by_band[band] = change
  end
end

-- By what they take turns: the limits, of which the unlimited ones are left out, and how far bands may be passed.
by_band.rules = function()
  local limits = {}
  for limit in string.gmatch(limiter.text or '', '[^;]+') do
    limits[#limits + 1] = not string.find(limit, int(MOST_COUNTED), 1, true) and limit or nil
  end
  return ':' .. table.concat({ table.concat(limits, '|'), (string.gsub(limiter.key_text or '', ';', '|')), d.aging or '1',
    (string.gsub(d.reserve or '-', ';', '+')) }, ':')
end

-- The limiter beside a gate or a bucket has no ledger: where a policy gives bands, or somebody waits in one, that of the gate or the
-- bucket has who waits and who goes, for the order of bands to be proven by it.
by_band.tell_owner = function()
  if not K_LIMITED_LEDGER or not (d.bands or d.aging or d.reserve or limiter.banded) then
    return
  end
  local own = redis.call('HMGET', K_LIMITED, 'ledger', 'ledger_keep', 'ledger_seq', 'epoch', 'pending_bytes', 'pending_messages',
    'leased_bytes', 'leased_messages')
  local rules, beside, all = by_band.rules(), d, notes
  notes = {}
  if redis.call('HGET', K_DESTINATION, 'noted') ~= own[4] .. rules then
    notes[#notes + 1] = 'turns' .. rules
  end
  for _, event in ipairs(all) do
    local name, rest = string.match(event, '^([%a-]+)(.*)')
    if name == 'held' then
      notes[#notes + 1] = 'went' .. rest
    elseif name == 'waits' or name == 'band' or name == 'quit' then
      notes[#notes + 1] = event
    end
  end
  if own[1] ~= 'off' and string.sub(notes[#notes] or 'turns', 1, 5) ~= 'turns' then
    d = { ledger_keep = own[2], ledger_seq = own[3] + 0, epoch = own[4], pending_bytes = own[5], pending_messages = own[6],
      leased_bytes = own[7], leased_messages = own[8] }
    write_ledger('turn', '-', 0, 0, 0, K_LIMITED_LEDGER)
    redis.call('HSET', K_LIMITED, 'ledger_seq', int(d.ledger_seq))
    redis.call('HSET', K_DESTINATION, 'noted', d.epoch .. rules)
  end
  d, notes = beside, all
end

by_band.save = function()
  local changes, texts = limiter.by_band, {}
  by_band.tell_owner()
  if not changes then
    return
  end
  for band, waiting, admitted, shed in string.gmatch(redis.call('HGET', K_DESTINATION, 'by_band') or '', '(%d) (%d+) (%d+) (%d+)') do
    local change = changes[band + 0] or { 0, 0, 0 }
    changes[band + 0] = { change[1] + waiting, change[2] + admitted, change[3] + shed }
  end
  for band, counts in pairs(changes) do
    texts[#texts + 1] = string.format('%d %.0f %.0f %.0f', band, math.max(0, counts[1]), counts[2], counts[3])
  end
  redis.call('HSET', K_DESTINATION, 'by_band', table.concat(texts, ';'))
end
