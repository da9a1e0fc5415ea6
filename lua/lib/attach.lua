--- @include "lib/orphans"
-- A consumer's place: its subscription, made where there is none, and its record.

local MAX_SUBSCRIPTIONS = 1000 -- of a topic that does not say: each message counts for all, and calls look through them

-- How many a topic may have, where it has as many, and this would be another; else nil.
local function filled_at(subscription)
  if subscription or d.kind ~= 'topic' then
    return nil
  end
  local most = tonumber(redis.call('HGET', K_DESTINATION, 'max_subscriptions') or MAX_SUBSCRIPTIONS)
  return d.subscriptions >= most and most or nil
end

-- Returns the subscription, made where there is none: a queue's own gets all that is there, any other what comes.
local function open_subscription(sub, durable)
  local subscription = read_subscription(sub)
  if not subscription then
    local from = d.kind == 'queue' and sub == 'queue' and '0' or '$'
    redis.call('XGROUP', 'CREATE', K_MESSAGES, sub, from, 'MKSTREAM')
    subscription = { durable = durable, from = d.message_seq, till = 0, consumers = 0 }
    d.subscriptions = d.subscriptions + 1
    save_subscription(sub, subscription)
  end
  return subscription
end

-- Returns the consumer, which is new or as it was.
local function place_consumer(cid, sub, durable)
  local subscription = open_subscription(sub, durable)
  local c = read_consumer(cid)
  if not c then
    redis.call('HDEL', K_PACE, cid) -- of one that had the number before
    c = { sub = sub, fetches = 0, delivered = 0, delivered_b = 0, settled = 0, settled_b = 0 }
    subscription.consumers = subscription.consumers + 1
    d.consumers = d.consumers + 1
    note('attach', cid, sub)
  end
  save_subscription(sub, subscription)
  return c
end
