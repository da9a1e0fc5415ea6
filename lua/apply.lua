--[[
  apply - create a destination or change its settings; effective at once, waiters included.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id        run                              the server's run id as the caller learnt it when it connected
  ARGV[2] mode          'ensure', 'change' or 'recover'  'ensure' leaves an existing destination as it is, 'change'
                             applies to it too, 'recover' creates in learning mode: the caller knew the destination
                             before the state was lost
  ARGV[3] ttl_ms        ttl  how long a recovered destination learns
  ARGV[4..] field, value  up to 100 of text to 60; field  settings and what they are set to; an empty value sets one
                             back to its default. What changes nothing but policy_version and policy leaves no ledger
                             entry and wakes nobody
  Returns {code, epoch, kind}
  Codes    OK, CREATED, KIND (it exists with the kind that follows, and a kind does not change), OLD (a newer policy version
           is in force), UNKNOWN (there is none, and no kind is given to make it)
  Fields   kind                  'queue', 'topic', 'gate', 'bucket', 'limiter' or 'store'
           limit_bytes           'unlimited' or 0 to 2^52
           limit_messages        'unlimited' or 0 to 2^52
           limit_reference_bytes  'unlimited' or 0 to 2^52
           hard_bytes            size
           resume_bytes          size or share
           resume_messages       size or share
           when_full             text to 60
           store                 name
           store_nonpersistent   name
           deadlock              'none', 'alert', 'fail' or 'ticket'
           oversize              'refuse' or 'allow-one'
           enforce               'always', 'with-consumers' or 'off'
           stopped               text to 1000
           confirm               text to 1000
           pools                 text to 3300
           reserved              'yes'
           pool_weight           1 to 1000
           slices                1 to 48
           sliced                1 to 48
           slices_pool           name
           messages_pool         name
           of_slices             1 to 48
           order_by              text to 300
           spread                text to 360
           send_rate             rate
           send_burst            1 to 2^52
           send_byte_rate        rate
           send_byte_burst       1 to 2^52
           delivery_rate         rate
           delivery_burst        1 to 2^52
           message_ttl_ms        ms
           max_attempts          size
           dead_letter           text to 255
           retry_delay_ms        ms
           retry_factor          rate
           retry_max_ms          ms
           slow_multiple         rate
           slow_rate             rate
           slow_period_ms        ms
           slow_action           'notify' or 'detach'
           max_subscriptions     1 to 10000
           durability            text to 40
           producer_window       size
           producer_rate         rate
           producer_byte_rate    rate
           producer_weight       1 to 1000
           producer_timeout_ms   'unlimited' or ms
           consumer_window       window
           consumer_rate         rate
           fair_by               text to 300
           fair_weights          weights
           max_overtaken         16 to 1000000
           durable_window        window
           browser_window        size
           subscription_windows  text to 100000
           rate                  rate
           burst                 1 to 2^52
           limits                limits
           key_limits            limits
           shadow_limits         limits
           shadow_key_limits     limits
           shadow                limits
           key_weights           weights
           bands                 weights
           aging                 rate
           reserve               weights
           shed                  weights
           order                 'deadline'
           fail_if_late          'yes'
           zone                  offsets
           unknown_keys          'refuse'
           max_keys              1 to 10000000
           hold_off_ms           1 to 86400000
           lease_ahead_ms        1 to 60000
           ledger_keys           'off'
           ledger                'all' or 'off'
           ledger_keep           size
           url                   text to 4000
           segment_bytes         size
           percent               text to 60
           total_bytes           size
           held_off              text to 40
           ramp                  text to 40
           off_reason            text to 200
           policy                text to 4000
           policy_version        total
]]
--- @include "lib/changed"
--- @include "lib/limiter_settings"
--- @include "lib/carry_over"
--- @include "lib/slices"
local run_id, mode, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ALWAYS = { limit_bytes = 'unlimited', limit_messages = 'unlimited', ledger = 'all', ledger_keep = '10000',
  policy_version = '0' } -- what every destination has
local settings = {}
for i = 4, #ARGV, 2 do
  settings[ARGV[i]] = ARGV[i + 1] == '' and ALWAYS[ARGV[i]] or ARGV[i + 1]
end
for rate, burst in pairs({ rate = 'burst', send_rate = 'send_burst', send_byte_rate = 'send_byte_burst',
  delivery_rate = 'delivery_burst' }) do
  if (tonumber(settings[burst]) or 0) * 1000000 > (tonumber(settings[rate]) or math.huge) * MOST_OWED_US then
    return redis.error_reply('ARGUMENT apply')
  end
end
if settings.kind == '' then settings.kind = nil end
local is_limited = settings.limits or settings.key_limits or settings.key_weights or settings.bands or settings.zone or settings.reserve or settings.shed
  or settings.shadow_limits or settings.shadow_key_limits or settings.shadow
if is_limited and not are_limiter_settings(settings) then
  return redis.error_reply('ARGUMENT apply')
end

local code = 'OK'
if load_destination(run_id, 0) then
  if settings.kind and settings.kind ~= d.kind then
    return { 'KIND', int(d.epoch), d.kind }
  elseif mode ~= 'change' then
    return { 'OK', int(d.epoch), d.kind }
  end
  local version = tonumber(redis.call('HGET', K_DESTINATION, 'policy_version') or 0)
  if settings.policy_version and tonumber(settings.policy_version) < version then
    return { 'OLD', int(d.epoch), d.kind }
  end
  redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: a limit can always be changed
  save_destination()
elseif not settings.kind then
  return { 'UNKNOWN', '0', '' }
else
  code = 'CREATED'
  local run, promotion = name_run(run_id)
  redis.call('HSET', K_DESTINATION, 'schema', '1', 'kind', settings.kind, 'limit_bytes', 'unlimited', 'limit_messages',
    'unlimited', 'pending_bytes', '0', 'pending_messages', '0', 'leased_bytes', '0', 'leased_messages', '0',
    'peak_bytes', '0', 'blocked', '0', 'consumers', '0', 'active', '0', 'rules', '', 'subscriptions', '0', 'epoch', int(now_ms), 'run_id', run,
    'promotion', promotion,
    'epoch_ms', int(now_ms), 'learning_until', int(mode == 'recover' and now_ms + learn_for(settings.kind, ttl_ms) or 0),
    'ttl_ms', int(ttl_ms), 'policy_version', '0', 'weight', '0', 'turns', '0', 'tickets', '0', 'message_seq',
    int(mode == 'recover' and now_us or 0), -- no number that was lost is ever given to another message
    'largest_bytes', '0', 'returned', '0', 'orphans', '0', 'recall_ms', '0', 'ledger', 'all', 'ledger_keep', '10000',
    'ledger_seq', '0', 'wide', string.rep('-', 65))
  if mode == 'recover' then redis.call('HSET', K_DESTINATION, 'epochs', '1') end
  redis.call('UNLINK', K_SESSIONS, K_LEASES, K_WAITERS) -- of counters that were evicted: what counts is claimed anew
end
if d then
  carry_over(settings, 'rate', 'burst', 'tat', 'took_us')
  carry_over(settings, 'send_rate', 'send_burst', 'send_tat', 'send_us')
  carry_over(settings, 'send_byte_rate', 'send_byte_burst', 'send_byte_tat', 'send_us')
  carry_over(settings, 'delivery_rate', 'delivery_burst', 'delivery_tat')
  local carry_over_all = d.kind == 'limiter' and carry_over_limits or carry_over_shadow
  carry_over_all(settings)
end
share_slices(settings, d and d.kind or settings.kind, code == 'CREATED')
local names, changes = {}, code == 'CREATED'
for field in pairs(settings) do
  names[#names + 1] = field
end
for i, before in ipairs(#names > 0 and redis.call('HMGET', K_DESTINATION, unpack(names)) or {}) do
  local field, value = names[i], settings[names[i]]
  if (before or '') ~= value then
    changes = changes or (field ~= 'policy_version' and field ~= 'policy')
    if value == '' then
      redis.call('HDEL', K_DESTINATION, field, (field == 'send_rate' or field == 'send_byte_rate') and 'send_line' or field)
    else
      redis.call('HSET', K_DESTINATION, field, value)
    end
  end
end
if not changes then
  return { code, int(d.epoch), d.kind }
end
redis.call('HDEL', K_DESTINATION, 'shut')
read_changed()
if d.kind ~= 'limiter' then -- whose leases are of holds: who waits comes again
  reap()
  hand_over()
end
note('limits', tostring(d.set_bytes or d.limit_bytes), tostring(d.set_messages or d.limit_messages))
note('binds', d.unbound and 'no' or 'yes')
note('above', d.oversize or 'refuse', d.hard_bytes and int(d.hard_bytes) or '-')
if d.kind == 'limiter' then
  local texts = redis.call('HMGET', K_DESTINATION, 'limits', 'key_limits', 'shadow_limits', 'shadow_key_limits')
  local of_all, of_keys = shadows_beside(limits_there(texts[1], texts[3])), shadows_beside(texts[2], texts[4])
  note('limiter', (string.gsub(of_all, ';', '|')), (string.gsub(of_keys, ';', '|')))
  if d.aging or settings.aging then note('aging', d.aging or '1') end
  if d.reserve or settings.reserve then note('reserve', (string.gsub(d.reserve or '-', ';', '+'))) end
end
write_ledger('apply', '-', 0, 0, 0)
save_destination()
wake_all('settings')
if d.stopped or is_above() or (d.kind == 'gate' and d.shadow) then recall() end
return { code, int(d.epoch), d.kind }
