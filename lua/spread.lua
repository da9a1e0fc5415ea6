--[[
  spread - have messages of a queue go to its slices by other values: not before all that was sent by those in force is settled.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run                       the server's run id as the caller learnt it when it connected
  ARGV[2] mode    'hold', 'change' or 'go'  'hold' lets nobody send there, and 'go' does again; 'change' puts in force what is to
                                            come, of the destination itself, whose other slices are held and empty
  ARGV[3] to      text to 360               what is to come, as its field `spread_to` has it
  Returns {code, busy, learning_ms}; busy: messages that are not settled, but for those that wait for their time, and those
          that senders have credit for; learning_ms: for which holders may still claim such
  Codes    OK, UNKNOWN, OLD (that is not to come there, or something later is)
]]
--- @include "lib/reap"
local mode, to = ARGV[2], ARGV[3]
if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
end
local has = redis.call('HMGET', K_DESTINATION, 'slices_pool', 'of_slices', 'spread_to', 'spreading', 'later', 'sliced')
local number, held, is_first = tonumber(string.match(to, '^%d+')), tonumber(has[4] or 0), has[6]
if not number or not has[1] or held > number or (mode == 'go' and held ~= number) or (is_first and has[3] ~= to) then
  return { 'OLD' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: messages are to go on
reap_leases()
local busy = d.pending_messages - tonumber(has[5] or 0) + d.leased_messages
local learning_ms = math.max(0, d.learning_until - now_ms)
local before = held
if mode == 'hold' then
  redis.call('HSET', K_DESTINATION, 'spreading', int(number))
  redis.call('HINCRBY', K_DESTINATION, 'spreads', 1)
  held = number
elseif mode == 'go' or busy == 0 and learning_ms == 0 then
  redis.call('HDEL', K_DESTINATION, 'spreading', 'spread_to')
  held = 0
  if mode == 'change' then
    redis.call('HSET', K_DESTINATION, 'spread', to)
    redis.call('HINCRBY', K_DESTINATION, 'spreads', 1)
  end
end
if held ~= before then
  redis.call('HSET', K_DESTINATION, 'rules', name_rules())
  save_destination()
  d = read_destination()
  wake_all('settings')
end
hand_over()
if #notes > 0 then
  write_ledger('reap', '-', 0, 0, 0)
end
save_destination()
if d.stopped then
  recall()
end
return { 'OK', int(busy), int(learning_ms) }
