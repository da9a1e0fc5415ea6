--- @include "lib/destination"
--- @include "lib/wake"
--- @include "lib/ledger"
-- Records of consumers and subscriptions.
local RETURNED = '~returned' -- a consumer name no client can have: its pending list holds what awaits redelivery
local IN_TURN = '~turn' -- the same where keys take turns: what awaits redelivery there is in its key's turn
local LATER = '~later' -- another: what waits for its time
local ENDED = '~ended' -- another: it reads what a removed subscription never delivered
local PAUSED = 'paused'
local CONSUMER = 'sub=%s fetches=%d delivered=%d delivered_b=%d settled=%d settled_b=%d window=%s'
local CONSUMER_PATTERN = '^sub=(%S+) fetches=(%d+) delivered=(%d+) delivered_b=(%d+) settled=(%d+) settled_b=(%d+) window=(%S+)$'
local SUBSCRIPTION = 'durable=%d from=%d until=%d consumers=%d'
local SUBSCRIPTION_PATTERN = '^durable=(%d) from=(%d+) until=(%d+) consumers=(%d+)$'

local function read_consumer(cid)
  local text = redis.call('HGET', K_CONSUMERS, cid)
  if not text then
    return nil
  end
  local c = {}
  local fetches, delivered, delivered_b, settled, settled_b
  c.sub, fetches, delivered, delivered_b, settled, settled_b, c.window = string.match(text, CONSUMER_PATTERN)
  c.fetches, c.delivered, c.delivered_b = tonumber(fetches), tonumber(delivered), tonumber(delivered_b)
  c.settled, c.settled_b = tonumber(settled), tonumber(settled_b)
  return c
end

local function save_consumer(cid, c)
  redis.call('HSET', K_CONSUMERS, cid, string.format(CONSUMER, c.sub, c.fetches, c.delivered, c.delivered_b, c.settled,
    c.settled_b, c.window))
end

-- Judge anew which limits bind, with that many active consumers; the ledger notes when that changes.
local function judge_again(active)
  local unbound = d.unbound
  d.active = active
  judge_rules(d)
  if d.unbound ~= unbound then
    note('binds', d.unbound and 'no' or 'yes')
  end
end

-- Change a consumer's window, and with it the number of those that are attached and not paused. Who is going is paused,
-- so that nobody is counted twice. Enforcement `with-consumers` hangs on that number; returns whether it was judged anew.
local function set_window(cid, c, window)
  local change = (window ~= PAUSED and 1 or 0) - (c.window and c.window ~= PAUSED and 1 or 0)
  c.window = window
  save_consumer(cid, c)
  if window == PAUSED then
    redis.call('ZREM', K_HUNGRY, cid) -- it would be woken in the place of one that has room
  end
  if change ~= 0 then
    local active = redis.call('HINCRBY', K_DESTINATION, 'active', change)
    if d.rules ~= '' then
      judge_again(active)
      return true
    end
  end
  return false
end

local function read_subscription(name)
  local text = redis.call('HGET', K_SUBSCRIPTIONS, name)
  if not text then
    return nil
  end
  local durable, from, till, consumers = string.match(text, SUBSCRIPTION_PATTERN)
  return { durable = tonumber(durable), from = tonumber(from), till = tonumber(till), consumers = tonumber(consumers) }
end

local function save_subscription(name, s)
  redis.call('HSET', K_SUBSCRIPTIONS, name, string.format(SUBSCRIPTION, s.durable, s.from, s.till, s.consumers))
end

-- Of the destination: when holders of a subscription's messages were last asked for what nobody has begun.
local function sought_field(sub)
  return sub == 'queue' and 'sought_ms' or 'sought_ms|' .. sub
end

-- Likewise: number of the last message that a subscription has read, where slices share a rate of deliveries.
local function read_field(sub)
  return sub == 'queue' and 'read_to' or 'read_to|' .. sub
end

local function size_of(id)
  return string.sub(id, string.find(id, '-', 1, true) + 1) + 0
end

-- Puts ids in the order of their numbers, in which they mostly are; of as many digits these compare as text.
local function put_in_order(ids)
  local digits, last = 0, ''
  for _, id in ipairs(ids) do
    local n = string.find(id, '-', 1, true)
    if n < digits or n == digits and id < last then
      table.sort(ids, function(one, other)
        return tonumber(string.match(one, '^%d+')) < tonumber(string.match(other, '^%d+'))
      end)
      break
    end
    digits, last = n, id
  end
  return ids
end

local function pending_ids(sub, consumer, count)
  local ids = {}
  for i, entry in ipairs(redis.call('XPENDING', K_MESSAGES, sub, '-', '+', int(count), consumer)) do
    ids[i] = entry[1]
  end
  return ids
end
