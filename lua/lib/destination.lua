--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/rules"
-- The destination's own hash, read once, changed in memory, and what changed written once by save_destination().
local d, raw
--- @enclose
local FIELDS = { 'kind', 'run_id', 'previous_run_id', 'ledger', 'ledger_keep', 'rules', 'limit_bytes',
  'limit_messages', 'epoch', 'epoch_ms', 'learning_until', 'ttl_ms', 'pending_bytes', 'pending_messages', 'leased_bytes',
  'leased_messages', 'peak_bytes', 'blocked', 'weight', 'turns', 'tickets', 'message_seq', 'largest_bytes', 'returned',
  'orphans', 'consumers', 'subscriptions', 'ledger_seq', 'recall_ms' }
local FIRST_NUMBER = 9 -- FIELDS from here on are whole numbers

local function read_destination()
  raw = redis.call('HMGET', K_DESTINATION, unpack(FIELDS))
  if not raw[1] then
    return nil
  end
  local read = { kind = raw[1], run_id = raw[2], previous_run_id = raw[3], ledger = raw[4], ledger_keep = raw[5],
    rules = raw[6] or '', limit_bytes = limit_of(raw[7]), limit_messages = limit_of(raw[8]), slice_bytes = MOST_COUNTED,
    pool_bytes = math.huge }
  for i = FIRST_NUMBER, #FIELDS do
    raw[i] = raw[i] + 0
    read[FIELDS[i]] = raw[i]
  end
  if read.rules ~= '' then
    load_rules(read)
  end
  return read
end

local function begin_epoch(run_id, ttl_ms)
  -- A restart or failover may have lost grants, so for one TTL nothing new is granted while holders claim theirs.
  d.previous_run_id = d.run_id
  d.run_id = run_id
  d.epoch = math.max(d.epoch + 1, now_ms)
  d.epoch_ms = now_ms
  d.message_seq = math.max(d.message_seq, now_us) -- no number that was lost is ever given to another message
  d.learning_until = now_ms + math.max(ttl_ms, d.ttl_ms)
  d.new_epoch = true
end

local function load_destination(run_id, ttl_ms)
  d = read_destination()
  if d and run_id ~= d.run_id and run_id ~= d.previous_run_id then
    begin_epoch(run_id, ttl_ms)
    if d.rules ~= '' then
      judge_rules(d) -- slices of before are in doubt
    end
  end
  return d
end

local function save_destination()
  d.peak_bytes = math.max(d.peak_bytes, d.pending_bytes + d.leased_bytes)
  local changed, n = { 'HSET', K_DESTINATION }, 2
  for i = FIRST_NUMBER, #FIELDS do
    local value = d[FIELDS[i]]
    if value ~= raw[i] then
      changed[n + 1], changed[n + 2] = FIELDS[i], int(value)
      n = n + 2
    end
  end
  if d.new_epoch then
    redis.call('HSET', K_DESTINATION, 'run_id', d.run_id, 'previous_run_id', d.previous_run_id)
  end
  if n > 2 then
    redis.call(unpack(changed))
  end
end
