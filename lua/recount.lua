--[[
  recount - count pending from the stored messages and leased from the sessions' totals; repair on request.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run                 the server's run id as the caller learnt it when it connected
  ARGV[2] repair  'repair' or 'look'  'repair' writes what was counted, 'look' does not
  ARGV[3] most    0 to 1000000        how many messages and sessions to read at most; more are refused, for Redis waits
                                      meanwhile
  Returns {code, pending_bytes, pending_messages, leased_bytes, leased_messages, blocked, weight, active, messages in turn, of
           these those that are to be, counted in the same order}
  Codes    OK, UNKNOWN, TOO_MANY (messages, sessions follow)
]]
--- @include "lib/credit"
--- @include "lib/turns_anew"
--- @include "lib/later_anew"
--- @include "lib/moved"
local run_id, repair, most = ARGV[1], ARGV[2] == 'repair', tonumber(ARGV[3])

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
local messages, sessions = redis.call('XLEN', K_MESSAGES), redis.call('HLEN', K_SESSIONS)
if d.kind == 'store' then
  messages = redis.call('HLEN', K_REFS) -- it has segments instead
end
if messages > most or sessions > most or redis.call('HLEN', K_CONSUMERS) > most then
  return { 'TOO_MANY', int(messages), int(sessions) }
end
local counted, bytes = count_moved()
local from, ready, filed = '-', 0, 0
read_taken()
for _ = 0, messages, CHUNK do
  local entries = redis.call('XRANGE', K_MESSAGES, from, '+', 'COUNT', CHUNK)
  for _, entry in ipairs(entries) do
    bytes, counted = bytes + size_of(entry[1]), counted + 1
    from = '(' .. entry[1]
  end
  local some = to_be_in_turn(entries)
  ready, filed = ready + #some, filed + count_in_turn(some)
end
if d.kind == 'store' then
  for _, record in ipairs(redis.call('HVALS', K_REFS)) do
    bytes, counted = bytes + tonumber(string.match(record, '^%d+')), counted + 1
  end
end
local leased, leased_m, weight = 0, 0, 0
for i, sid in ipairs(redis.call('HKEYS', K_SESSIONS)) do
  local s = read_session(sid)
  local held_b, held_m = held(s)
  leased, leased_m, weight = leased + held_b, leased_m + held_m, weight + s.weight
end
local active = 0
for _, cid in ipairs(redis.call('HKEYS', K_CONSUMERS)) do
  active = active + (read_consumer(cid).window ~= PAUSED and 1 or 0)
end
local known = redis.call('HGET', K_DESTINATION, 'active') or '0'
local reply = { 'OK', int(d.pending_bytes), int(d.pending_messages), int(d.leased_bytes), int(d.leased_messages),
  int(d.blocked), int(d.weight), known, int(redis.call('ZCARD', K_FAIR)), int(filed), int(bytes), int(counted), int(leased), int(leased_m),
  int(redis.call('ZCARD', K_WAITERS)), int(weight), int(active), int(ready), int(ready) }
if repair then
  redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
  d.pending_bytes, d.pending_messages, d.leased_bytes, d.leased_messages = bytes, counted, leased, leased_m
  redis.call('HSET', K_DESTINATION, 'active', int(active))
  if d.rules ~= '' then
    judge_again(active)
  end
  d.blocked, d.weight = redis.call('ZCARD', K_WAITERS), weight
  put_in_turn_anew()
  put_later_right(most)
  note('repair', reply[2], reply[3], reply[4], reply[5])
  hand_over()
  write_ledger('recount', '-', bytes, counted, 0)
  save_destination()
end
return reply
