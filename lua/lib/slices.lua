--- @include "lib/keys"
--- @include "lib/number"
--- @include "lib/ledger"
-- Where values of a header say which slice a message goes to, another number of slices, or another header, is to come
-- (`spread_to`), and nobody may send, until all that was sent by the one in force (`spread`) is settled: see spread.lua. Each has a
-- number of its own, so what was seen of one says nothing of others.
local SPREAD = '^(%d+) (%d+ .+)$'
local function respread(settings, is_new)
  local has = redis.call('HMGET', K_DESTINATION, 'slices', 'order_by', 'spread', 'spread_to')
  local function value(name, before)
    return settings[name] or before or ''
  end
  local slices, by = value('slices', has[1]), value('order_by', has[2])
  local given, target = settings.spread or '', (slices == '' and '1' or slices) .. ' ' .. (by == '' and '-' or by)
  settings.spread, settings.spread_to, settings.spreading = nil, nil, nil
  local now, to = is_new and given or has[3] or '', has[4] or ''
  if now == '' and by == '' then
    return
  end
  local number, in_force = string.match(now, SPREAD)
  local next_number, coming = string.match(to, SPREAD)
  if (coming or in_force) ~= target then
    local text = int(math.max(tonumber(number) or 0, tonumber(next_number) or 0) + 1) .. ' ' .. target
    if in_force == target or (is_new and not in_force) then
      now, to = text, ''
    else
      to = text
    end
  end
  settings.spread, settings.spread_to, settings.spreading = now, to, string.match(to, '^%d+') or ''
end

-- Slices of a queue, a topic or a gate share its limit as members of a pool of their own, and one in messages of another, from the very
-- call on that makes them so: what a caller says of these, or does not say, counts for nothing. Their keys say whose slices they are.
local function share_slices(settings, kind, is_new)
  local whole = string.match(K_DESTINATION, '/(.-)%%%.%d+%%%.%d+}$')
  local of = redis.call('HGET', K_DESTINATION, 'of_slices')
  local before = tonumber(redis.call('HGET', K_DESTINATION, 'sliced') or 1)
  local most = math.max(before, tonumber(settings.sliced) or 1, tonumber(settings.slices) or 1, tonumber(settings.of_slices) or 1)
  settings.sliced, settings.slices_pool, settings.messages_pool, settings.of_slices = nil, nil, nil, nil
  if whole then
    settings.slices, settings.spread = nil, nil
    settings.slices_pool = whole .. '%.0'
  elseif most > 1 then
    settings.sliced = string.format('%d', most) -- it never gets less: late callers may still send to any of them
    settings.slices_pool = string.match(K_DESTINATION, '/(.-)}$') .. '%.0'
  end
  if kind == 'limiter' then -- whose limits are of each key, and a key lies in one slice
    settings.slices_pool = nil
  end
  if settings.slices_pool then
    local limit = settings.limit_messages or redis.call('HGET', K_DESTINATION, 'limit_messages') or 'unlimited'
    local pool = string.gsub(settings.slices_pool, '0$', 'm')
    settings.messages_pool = limit ~= 'unlimited' and pool or ''
    if limit == 'unlimited' and redis.call('HDEL', K_SLICES, pool) == 1 then
      note('slice', pool, '0', '0', '0') -- what is used from now on was never lent: the next pool asks
    end
    settings.of_slices = string.format('%d', math.max(most, tonumber(of) or 1))
    for _, rate in ipairs({ 'send', 'send_byte', 'delivery' }) do
      if settings[rate .. '_rate'] == '' then
        redis.call('HDEL', K_DESTINATION, rate .. '_lent', rate .. '_line', rate .. '_kept') -- what passes from now on nobody counts: with the next rate all slices are asked
      end
    end
  end
  if not whole then
    respread(settings, is_new)
  end
end

-- Limits of all keys together, and shadow limits, as the ledger of a slice has them: they are the first one's, and bind, and count,
-- nobody at another.
local function limits_there(text, shadows)
  if not string.find(K_DESTINATION, '%%%.%d') then
    return text, shadows
  end
  local most = int(MOST_COUNTED)
  text = string.gsub(text, ' at_once [^;]+', ' at_once ' .. most)
  text = string.gsub(text, ' rate %S+ %d+', ' rate 1e15 ' .. most)
  return string.gsub(text, ' quota %d+', ' quota ' .. most), nil
end
