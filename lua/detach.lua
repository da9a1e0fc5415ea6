--[[
  detach - close a consumer: what it holds goes back to its subscription, a bounded piece a call.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run     the server's run id as the caller learnt it when it connected
  ARGV[2] session   id      of the caller
  ARGV[3] consumer  consumer or subscription  id, or '!<subscription>' to remove a subscription with all that it has not
                            settled
  ARGV[4] failed    0 to 1  '1' counts what it holds as failed attempts, '0' does not; what one held that was
                            detached here for being slow, or lost its lease, counts in any case
  Returns {code, epoch}
  Codes    OK, MORE (call again), UNKNOWN, BUSY (a subscription with consumers is not removed, nor a queue's
           own while its keys take turns)
]]
--- @include "lib/orphans"
local run_id, sid, member, failed = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
end
local ending = string.sub(member, 1, 1) == '!' and string.sub(member, 2)
local subscription = ending and read_subscription(ending)
if subscription and (subscription.consumers > 0 or (d.fair and ending == 'queue')) then
  return { 'BUSY', int(d.epoch) }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
d.caller = sid
local code = 'OK'
if ending then
  if subscription and subscription.till == 0 then
    end_subscription(ending, subscription)
  end
else
  local c = read_consumer(member)
  failed = failed or redis.call('ZSCORE', K_ORPHANS, member)
  local woken = redis.call('ZREM', K_HUNGRY, member) == 0
  redis.call('HDEL', K_PACE, member)
  if c then
    woken = woken and c.window ~= PAUSED
    set_window(member, c, PAUSED)
    if woken then
      wake_hungry(1, c.sub) -- for what it did not fetch any more
    end
  end
  if c and not failed then
    local ids = pending_ids(c.sub, member, MAX_MOVED)
    put_back(c.sub, ids, false)
    code = #ids == MAX_MOVED and 'MORE' or 'OK'
  end
  if c and code == 'OK' then
    d.orphans = d.orphans + redis.call('ZADD', K_ORPHANS, 'NX', 0, member) -- the next orphan that reap() takes
    note('detach', member)
  end
end
reap()
if redis.call('ZSCORE', K_ORPHANS, member) then
  code = 'MORE'
end
hand_over()
write_ledger('detach', member, 0, 0, 0)
save_destination()
return { code, int(d.epoch) }
