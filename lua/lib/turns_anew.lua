--- @include "lib/consumer"
--- @include "lib/in_turn"
-- What is in turn at a queue, beside what nobody has of its messages; and that put in turn anew.
local CHUNK = 500
local taken -- whether somebody has a message that was delivered, by its id; nil where no keys take turns

local function read_taken()
  if not d.fair or redis.call('HEXISTS', K_SUBSCRIPTIONS, 'queue') == 0 then
    return
  end
  local from = '-'
  taken = {}
  for _ = 0, redis.call('XPENDING', K_MESSAGES, 'queue')[1], CHUNK do
    for _, delivery in ipairs(redis.call('XPENDING', K_MESSAGES, 'queue', from, '+', CHUNK)) do
      taken[delivery[1]] = delivery[2] ~= IN_TURN
      from = '(' .. delivery[1]
    end
  end
end

-- Of a piece of the stream, what is to be in turn: what came back, and what nobody had up to where all is sorted.
local function to_be_in_turn(entries)
  local found = {}
  for _, entry in ipairs(taken and entries or {}) do
    local had = taken[entry[1]]
    if had == false or (not had and tonumber(string.match(entry[1], '^%d+')) <= (d.sorted or 0)) then
      found[#found + 1] = entry
    end
  end
  return found
end

local function count_in_turn(entries)
  local count = 0
  for _, entry in ipairs(entries) do
    count = count + ((in_turn().has(entry) or in_turn().has(entry, NO_KEY)) and 1 or 0)
  end
  return count
end

local function put_in_turn_anew()
  if not taken then
    return
  end
  local from, count = '-', redis.call('XLEN', K_MESSAGES)
  redis.call('DEL', K_FAIR)
  for _ = 0, count, CHUNK do
    local entries = redis.call('XRANGE', K_MESSAGES, from, '+', 'COUNT', CHUNK)
    in_turn().file(to_be_in_turn(entries))
    from = #entries > 0 and '(' .. entries[#entries][1] or from
  end
end
