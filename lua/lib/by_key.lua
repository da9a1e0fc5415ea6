--- @include "lib/limits"
-- What a gate or a bucket keeps for keys is a limiter beside it, with its own limits: there keys take turns. It is made with
-- the first key, and what the one may have lost it may have lost too.
local K_LIMITED = KEYS[27] -- the gate's or bucket's own hash; nothing for a limiter

local function begin_by_key(run_id, own)
  local run, promotion, may_be_lost = next_run(run_id, own[2], K_LIMITED)
  raw = {}
  d = { kind = 'limiter', run_id = run or own[2], promotion = promotion or '', ledger = 'off', rules = '' }
  for i = FIRST_NUMBER, #FIELDS do
    d[FIELDS[i]] = 0
  end
  d.ttl_ms, d.epoch = own[5] + 0, may_be_lost and math.max(own[3] + 1, now_ms) or own[3] + 0
  d.epoch_ms, d.learning_until = now_ms, may_be_lost and now_ms + d.ttl_ms or own[4] + 0
  return d
end

local function load_by_key(run_id)
  local own = redis.call('HMGET', K_LIMITED, 'kind', 'run_id', 'epoch', 'learning_until', 'ttl_ms', 'rules')
  if own[1] ~= 'gate' and own[1] ~= 'bucket' then
    return nil
  end
  d = load_destination(run_id, 0) or begin_by_key(run_id, own)
  if own[6] ~= '' then
    local rules = redis.call('HMGET', K_LIMITED, 'bands', 'aging', 'reserve', 'shed', 'order', 'fail_if_late')
    d.bands, d.aging, d.reserve, d.shed, d.order, d.fail_if_late = unpack(rules)
  end
  return d
end

local function save_by_key()
  if not raw[1] then
    redis.call('HSET', K_DESTINATION, 'schema', '1', 'kind', 'limiter', 'ledger', 'off', 'ledger_keep', '0', 'rules', '',
      'limit_bytes', 'unlimited', 'limit_messages', 'unlimited')
  end
end

-- The settings of a gate or a bucket, in the places of a limiter's. It keeps its limits itself: here they say whose turn it is.
local function take_settings(settings)
  local own = redis.call('HMGET', K_LIMITED, 'kind', 'rate', 'burst', 'limit_bytes', 'limit_messages', 'enforce', 'oversize',
    'key_limits', 'key_weights', 'unknown_keys', 'max_keys')
  local most, off = int(MOST_COUNTED), own[6] == 'off'
  local bytes = (off or own[4] == 'unlimited' or own[7] == 'allow-one') and most or own[4]
  settings[1] = 'bytes at_once ' .. bytes .. ';calls at_once ' .. ((off or own[5] == 'unlimited') and most or own[5])
  if own[1] == 'bucket' then
    settings[1] = 'tokens rate ' .. (own[2] or '1e15') .. ' ' .. (own[2] and own[3] or most)
  end
  settings[2], settings[3], settings[5], settings[6] = own[8], own[9], own[10], own[11]
end
