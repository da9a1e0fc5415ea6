--- @include "lib/keyed"
--- @include "lib/session"
--- @include "lib/hold_records"
-- Holds: what was admitted, or waits, each with a lease of its own. Its amounts are '<name>:<n>' of what is held at once and
-- '<name>=<n>' of all else, with ',' between; callers may write '=' for both.
local HOLD = '^(%u) (%d+) (%d+) (%d+) (%S+) (%d) (%S+) (%d+)$'
local AMOUNT = '([%w_]+)([=:])(%d+)'
local parsed, named = {}, {} -- of the amounts that this call met: many of its holds are alike

local function read_hold(id)
  local text = texts[id]
  if text == nil then
    read_holds({ id })
    text = texts[id]
  end
  if not text then
    return nil
  end
  local state, ttl, strike, since, key, settled, amounts, ticket = string.match(text, HOLD)
  return { state = state, ttl = ttl + 0, strike = strike + 0, since = since + 0, key = key, settled = settled + 0,
    amounts = amounts, ticket = ticket + 0 }
end

local function save_hold(id, h)
  store_hold(id, string.format('%s %d %d %d %s %d %s %d', h.state, h.ttl, h.strike, h.since, h.key, h.settled, h.amounts,
    h.ticket))
end

-- A lease has two strikes, as one of a session has. Where its taker was not heard of until then, it begins with the first.
local function renew_hold(id, h, ttl_ms, from_ms)
  local until_ms = from_ms + math.floor(ttl_ms * 6 / 10)
  h.ttl, h.strike = ttl_ms, until_ms <= limiter.now_ms and limiter.now_ms or 0
  d.ttl_ms = math.max(d.ttl_ms, ttl_ms)
  leases[id] = int(until_ms)
end

-- What a text says of amounts: {{ name, sign, number }, ...}.
local function amounts_of(text)
  if not parsed[text] then
    local amounts = {}
    for name, sign, number in string.gmatch(text, AMOUNT) do
      amounts[#amounts + 1] = { name, sign, math.min(number + 0, MOST) }
    end
    parsed[text] = amounts
  end
  return parsed[text]
end

-- The amounts of a caller as a hold keeps them, each name once; nil and the name of one that is no limit here.
local function name_amounts(text)
  if named[text] then
    return named[text]
  end
  local given, parts = {}, {}
  for _, amount in ipairs(amounts_of(text)) do
    if not limiter.forms[amount[1]] then
      return nil, amount[1]
    end
    given[amount[1]] = amount[3]
  end
  for _, limit in ipairs(limiter.limits) do
    if (given[limit.name] or 0) > 0 then
      parts[#parts + 1] = limit.name .. (limit.form == 'at_once' and ':' or '=') .. int(given[limit.name])
    end
  end
  named[text] = #parts > 0 and table.concat(parts, ',') or '-'
  return named[text]
end

-- Amounts and levels as the ledger has them: ',' and ';' are between its fields and notes.
local function for_ledger(text)
  return (string.gsub(text, '[,;]', ' '))
end

local function of_ledger(key)
  return limiter.names_keys and key or NO_KEY
end
