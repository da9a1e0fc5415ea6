--- @include "lib/reap"
--- @include "lib/promote"
--- @include "lib/selecting"
-- What the dead and the departed left behind, worked off a bounded piece at every call: deliveries of orphaned
-- consumers go back to their subscription; '!name' is a subscription being removed, whose messages are settled.

local function end_subscription(name, s)
  s.till = d.message_seq + 1 -- the first message that does not count this subscription; never 0, which says that it lives
  save_subscription(name, s)
  d.subscriptions = d.subscriptions - 1
  d.orphans = d.orphans + redis.call('ZADD', K_ORPHANS, 'NX', int(now_ms), '!' .. name)
  forget_selector(name)
end

local function forget_orphan(member)
  d.orphans = d.orphans - redis.call('ZREM', K_ORPHANS, member)
end

local function drain_consumer(cid)
  local c = read_consumer(cid)
  if c and redis.call('HEXISTS', K_SUBSCRIPTIONS, c.sub) == 1 then
    local ids = pending_ids(c.sub, cid, MAX_MOVED)
    put_back(c.sub, ids, true)
    if #ids == MAX_MOVED then
      return
    end
    redis.call('XGROUP', 'DELCONSUMER', K_MESSAGES, c.sub, cid)
    local s = read_subscription(c.sub)
    s.consumers = s.consumers - 1
    save_subscription(c.sub, s)
    if s.consumers == 0 and s.durable == 0 and s.till == 0 then
      end_subscription(c.sub, s)
    end
  end
  d.consumers = d.consumers - redis.call('HDEL', K_CONSUMERS, cid)
  forget_orphan(cid)
end

local function drain_subscription(member)
  local name = string.sub(member, 2)
  local s = read_subscription(name)
  if s then
    local ids = pending_ids(name, RETURNED, MAX_MOVED)
    d.returned = d.returned - #ids
    ids = and_set_aside(name, ids, MAX_MOVED)
    local more = #ids == MAX_MOVED
    if not more then
      local reply = redis.call('XREADGROUP', 'GROUP', name, ENDED, 'COUNT', int(MAX_MOVED - #ids), 'STREAMS', K_MESSAGES, '>')
      local entries, counting = reply and reply[1] and reply[1][2] or {}, {}
      for _, entry in ipairs(entries) do
        if tonumber(string.match(entry[1], '^(%d+)')) < s.till then
          counting[#counting + 1] = entry
        end
      end
      more = #ids + #counting == MAX_MOVED
      for _, entry in ipairs(unexpired_entries(name, wanted(name, counting))) do
        ids[#ids + 1] = entry[1]
      end
    end
    local _, _, messages, bytes = settle_ids(name, ids, true)
    if messages > 0 then
      note('purge', name, int(bytes), int(messages))
    end
    if more then
      return
    end
    redis.call('XGROUP', 'DESTROY', K_MESSAGES, name)
    redis.call('HDEL', K_SUBSCRIPTIONS, name)
    redis.call('HDEL', K_DESTINATION, sought_field(name), read_field(name))
    if name == 'queue' and d.fair then
      in_turn().begin() -- with the next subscription
    end
  end
  forget_orphan(member)
end

-- One bounded piece of housekeeping; returns whether it may have freed room.
local function reap()
  local changed = reap_leases()
  if expire_due() then
    changed = true
  end
  promote_due()
  if d.orphans > 0 then
    local member = redis.call('ZRANGE', K_ORPHANS, 0, 0)[1]
    redis.call('ZADD', K_ORPHANS, 'XX', int(now_ms), member) -- next call, next orphan
    if string.sub(member, 1, 1) == '!' then
      drain_subscription(member)
    else
      drain_consumer(member)
    end
    changed = true
  end
  return changed
end
