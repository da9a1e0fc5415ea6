--- @include "lib/destination"
--- @include "lib/wake"
-- What a destination knows of links. Of one that takes messages from here, how far it got; of one that puts messages
-- here, what it put last. That lies in the slot of the messages, so both are written, and lost, together.
local SOURCE = 'fence=%d taken=%d released=%d'
local SOURCE_PATTERN = '^fence=(%d+) taken=(%d+) released=(%d+)$'
local TARGET = 'born=%d fence=%d mark=%d'
local TARGET_PATTERN = '^born=(%d+) fence=(%d+) mark=(%d+)$'
local ANY_SIZE = '-18446744073709551615' -- of the messages with a number, the last id there can be

local function born()
  return tonumber(redis.call('HGET', K_DESTINATION, 'born') or 0)
end

local function read_source(link)
  local fence, taken, released = string.match(redis.call('HGET', K_LINKS, 'from:' .. link) or '', SOURCE_PATTERN)
  return { fence = tonumber(fence or 0), taken = tonumber(taken or 0), released = tonumber(released or 0) }
end

local function save_source(link, l)
  redis.call('HSET', K_LINKS, 'from:' .. link, string.format(SOURCE, l.fence, l.taken, l.released))
end

-- Tells senders how far a link got, where their receipts wait for it.
local function tell_released(link, released)
  local record = redis.call('HGET', K_DESTINATION, 'confirm')
  if record and string.match(record, '^%S+') == link then
    wake_all('released ' .. link .. ' ' .. int(released))
  end
end

local function read_target(link)
  local from, fence, mark = string.match(redis.call('HGET', K_LINKS, 'to:' .. link) or '', TARGET_PATTERN)
  return { born = tonumber(from or 0), fence = tonumber(fence or 0), mark = tonumber(mark or 0) }
end

local function save_target(link, l)
  redis.call('HSET', K_LINKS, 'to:' .. link, string.format(TARGET, l.born, l.fence, l.mark))
end

-- What a message takes along: how long it lives on, and until it is due, where it is not; and the places that it came through.
local function carried(fields)
  local life, path, wait = 'never', '', ''
  for i = 3, #fields, 2 do
    local value = fields[i + 1]
    if fields[i] == 'x' then
      life = int(math.max(1, tonumber(value) - now_ms))
    elseif fields[i] == 'd' and tonumber(value) > now_ms then
      wait = '+' .. int(tonumber(value) - now_ms)
    elseif fields[i] == 'h' then
      path = value
    end
  end
  return life .. wait, path
end
