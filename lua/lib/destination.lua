--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/rules"
--- @include "lib/run"
-- The destination's own hash, read once, changed in memory, and what changed written once by save_destination().
local d, raw
local MOST_LEARNING_MS = 60000 -- of a limiter, some of whose holds have leases of an hour
local MAX_LEASES = 512 -- sessions whose leases are looked at as an epoch begins
--- @enclose
local FIELDS = { 'kind', 'run_id', 'ledger', 'ledger_keep', 'rules', 'limit_bytes',
  'limit_messages', 'epoch', 'epoch_ms', 'learning_until', 'ttl_ms', 'pending_bytes', 'pending_messages', 'leased_bytes',
  'leased_messages', 'peak_bytes', 'blocked', 'weight', 'turns', 'tickets', 'message_seq', 'largest_bytes', 'returned',
  'orphans', 'consumers', 'subscriptions', 'ledger_seq', 'recall_ms' }
local FIRST_NUMBER = 8 -- FIELDS from here on are whole numbers

local function read_destination()
  raw = redis.call('HMGET', K_DESTINATION, unpack(FIELDS))
  if not raw[1] then
    return nil
  end
  local r = raw
  for i = FIRST_NUMBER, #FIELDS do
    r[i] = r[i] + 0
  end
  -- Written out, for a table that grows by its names, one by one, is moved again and again.
  local read = { kind = r[1], run_id = r[2], ledger = r[3], ledger_keep = r[4], rules = r[5] or '', limit_bytes = limit_of(r[6]),
    limit_messages = limit_of(r[7]), slice_bytes = MOST_COUNTED, slice_messages = MOST_COUNTED, pool_bytes = math.huge,
    pool_messages = math.huge, epoch = r[8], epoch_ms = r[9],
    learning_until = r[10], ttl_ms = r[11], pending_bytes = r[12], pending_messages = r[13], leased_bytes = r[14],
    leased_messages = r[15], peak_bytes = r[16], blocked = r[17], weight = r[18], turns = r[19], tickets = r[20],
    message_seq = r[21], largest_bytes = r[22], returned = r[23], orphans = r[24], consumers = r[25], subscriptions = r[26],
    ledger_seq = r[27], recall_ms = r[28] }
  if read.rules ~= '' then
    load_rules(read)
  end
  return read
end

-- Holders of a limiter claim within seconds, however long their leases are.
local function learn_for(kind, ttl_ms)
  return kind == 'limiter' and math.min(ttl_ms, MOST_LEARNING_MS) or ttl_ms
end

local function begin_epoch(ttl_ms)
  -- A restart or failover may have lost grants, so for one TTL nothing new is granted while holders claim theirs.
  d.new_epoch = true
  d.epoch = math.max(d.epoch + 1, now_ms)
  d.epoch_ms = now_ms
  d.message_seq = math.max(d.message_seq, now_us) -- no number that was lost is ever given to another message
  -- Whoever held something may take as long to claim it as the longest lease there is, or ever was here where no session is
  -- left, or too many are.
  local longest, records = 0, redis.call('HLEN', K_SESSIONS) <= MAX_LEASES and redis.call('HVALS', K_SESSIONS) or {}
  for _, record in ipairs(records) do
    longest = math.max(longest, tonumber(string.match(record, ' ttl=(%d+)')) or 0)
  end
  d.ttl_ms = math.max(ttl_ms, longest > 0 and longest or d.ttl_ms)
  d.learning_until = now_ms + learn_for(d.kind, d.ttl_ms)
  if d.rules ~= '' then
    judge_rules(d) -- earlier slices are in doubt
  end
end

local function meet_run(run_id, ttl_ms)
  local run, promotion, may_be_lost = next_run(run_id, d.run_id, K_DESTINATION)
  if run then
    d.run_id, d.promotion = run, promotion
    if may_be_lost then
      begin_epoch(ttl_ms)
    end
  end
end

local function load_destination(run_id, ttl_ms)
  d = read_destination()
  -- A connection belongs to one server, so no late call names another than the one that runs this.
  if d and run_id ~= d.run_id then
    meet_run(run_id, ttl_ms)
  end
  if d and d.learning_until > now_ms then -- after a clock that was set back nobody has longer to claim
    d.learning_until = math.min(d.learning_until, now_ms + learn_for(d.kind, d.ttl_ms))
  end
  return d
end

-- Epochs that began here and what is known to be lost: of all, and of this epoch.
local function count_losses()
  local before = redis.call('HMGET', K_DESTINATION, 'epochs', 'lost_messages', 'epoch_lost')
  local began, lost = d.new_epoch and 1 or 0, d.lost or 0
  local all, here = (before[2] or 0) + lost, (began == 0 and before[3] or 0) + lost
  redis.call('HSET', K_DESTINATION, 'epochs', int((before[1] or 0) + began), 'lost_messages', int(math.min(MOST, all)),
    'epoch_lost', int(math.min(MOST, here)))
end

local function save_destination()
  d.peak_bytes = math.max(d.peak_bytes, d.pending_bytes + d.leased_bytes)
  local changed, n, now, before, names = { 'HSET', K_DESTINATION }, 2, d, raw, FIELDS
  for i = FIRST_NUMBER, #FIELDS do
    local value = now[names[i]]
    if value ~= before[i] then
      changed[n + 1], changed[n + 2] = names[i], int(value)
      n = n + 2
    end
  end
  if d.promotion then
    redis.call('HSET', K_DESTINATION, 'run_id', d.run_id, 'promotion', d.promotion)
  end
  if d.new_epoch or d.lost then
    count_losses()
  end
  tell_what_is_free(d, before)
  if d.spent then
    hold_off.finish(d)
  end
  if n > 2 then
    redis.call(unpack(changed))
  end
end
