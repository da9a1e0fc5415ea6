--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
-- The destination's own hash, read once, changed in memory, written once by save_destination().
local d

local function read_destination()
  local v = redis.call('HMGET', K_DESTINATION, 'kind', 'epoch', 'run_id', 'previous_run_id', 'epoch_ms',
    'learning_until', 'ttl_ms', 'limit_bytes', 'limit_messages', 'pending_bytes', 'pending_messages',
    'leased_bytes', 'leased_messages', 'peak_bytes', 'blocked', 'weight', 'tickets', 'message_seq',
    'largest_bytes', 'returned', 'orphans', 'consumers', 'subscriptions', 'ledger', 'ledger_keep',
    'ledger_seq', 'recall_ms')
  if not v[1] then
    return nil
  end
  return {
    kind = v[1], epoch = tonumber(v[2]), run_id = v[3], previous_run_id = v[4], epoch_ms = tonumber(v[5]),
    learning_until = tonumber(v[6]), ttl_ms = tonumber(v[7]),
    limit_bytes = limit_of(v[8]), limit_messages = limit_of(v[9]),
    pending_bytes = tonumber(v[10]), pending_messages = tonumber(v[11]),
    leased_bytes = tonumber(v[12]), leased_messages = tonumber(v[13]), peak_bytes = tonumber(v[14]),
    blocked = tonumber(v[15]), weight = tonumber(v[16]), tickets = tonumber(v[17]), message_seq = tonumber(v[18]),
    largest_bytes = tonumber(v[19]), returned = tonumber(v[20]), orphans = tonumber(v[21]),
    consumers = tonumber(v[22]), subscriptions = tonumber(v[23]), ledger = v[24], ledger_keep = v[25],
    ledger_seq = tonumber(v[26]), recall_ms = tonumber(v[27]),
  }
end

local function begin_epoch(run_id, ttl_ms)
  -- A restart or failover may have lost grants, so for one TTL nothing new is granted while holders claim theirs.
  d.previous_run_id = d.run_id
  d.run_id = run_id
  d.epoch = math.max(d.epoch + 1, math.floor(now_ms / 1000))
  d.epoch_ms = now_ms
  d.learning_until = now_ms + math.max(ttl_ms, d.ttl_ms)
  d.new_epoch = true
end

local function load_destination(run_id, ttl_ms)
  d = read_destination()
  if d and run_id ~= d.run_id and run_id ~= d.previous_run_id then
    begin_epoch(run_id, ttl_ms)
  end
  return d
end

local function save_destination()
  local peak = d.pending_bytes + d.leased_bytes
  if peak > d.peak_bytes then
    d.peak_bytes = peak
  end
  redis.call('HSET', K_DESTINATION, 'pending_bytes', int(d.pending_bytes), 'pending_messages', int(d.pending_messages),
    'leased_bytes', int(d.leased_bytes), 'leased_messages', int(d.leased_messages), 'peak_bytes', int(d.peak_bytes),
    'blocked', int(d.blocked), 'weight', int(d.weight), 'tickets', int(d.tickets), 'message_seq', int(d.message_seq),
    'largest_bytes', int(d.largest_bytes), 'returned', int(d.returned), 'orphans', int(d.orphans),
    'consumers', int(d.consumers), 'subscriptions', int(d.subscriptions), 'ledger_seq', int(d.ledger_seq),
    'recall_ms', int(d.recall_ms), 'ttl_ms', int(d.ttl_ms))
  if d.new_epoch then
    redis.call('HSET', K_DESTINATION, 'epoch', int(d.epoch), 'run_id', d.run_id, 'previous_run_id',
      d.previous_run_id or '', 'epoch_ms', int(d.epoch_ms), 'learning_until', int(d.learning_until))
  end
end
