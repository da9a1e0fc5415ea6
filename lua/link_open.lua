--[[
  link_open - open a link at its source: an ordinary consumer that no lease ends, for its target may have what it holds.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run     the server's run id as the caller learnt it when it connected
  ARGV[2] link    id      id of the link; also the name of its subscription, unless it moves messages of a queue
  ARGV[3] fence   size    number of the caller's lease on the link
  ARGV[4] window  window  as the operator reads it, '<messages>/<bytes>'
  ARGV[5] how     'moves' or 'copies'  of a queue: 'moves' takes messages as its consumers do, 'copies' gets each
                                       message that is stored from now on, beside them
  Returns {code, epoch, born, released}; born: which destination of this name it is; released: number of the last message
           that left it over the link
  Codes    OK, UNKNOWN, KIND (a gate or a bucket has no messages; the kind follows), GONE (an earlier link of this id is
           being removed: try again), FENCED (a later lease; its number follows epoch), FULL (the topic has as many
           subscriptions as it may)
]]
--- @include "lib/attach"
--- @include "lib/link"
local run_id, link, fence, window, copies = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5] == 'copies'
local cid = link .. '.1'

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'queue' and d.kind ~= 'topic' then
  return { 'KIND', d.kind }
end
local sub = d.kind == 'queue' and not copies and 'queue' or link
local l = read_source(link)
if fence < l.fence then
  return { 'FENCED', int(d.epoch), int(l.fence) }
end

d.grows = true
redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- no effect but this: under OOM nothing is applied
if reap() then
  hand_over()
end
local code, subscription = 'OK', read_subscription(sub)
if redis.call('ZSCORE', K_ORPHANS, cid) or (subscription and subscription.till > 0) then
  code = 'GONE'
elseif filled_at(subscription) then
  code = 'FULL'
else
  if d.kind == 'queue' then
    open_subscription('queue', 1) -- before the first copy: what its consumers are to get counts for them too
  end
  local judged = set_window(cid, place_consumer(cid, sub, 1), window)
  if judged then
    hand_over()
    if is_above() then
      recall()
    end
  end
  if born() == 0 then
    redis.call('HSET', K_DESTINATION, 'born', int(now_ms))
  end
  l.fence = fence
  save_source(link, l)
end
if #notes > 0 then
  write_ledger('attach', cid, 0, 0, 0)
end
save_destination()
return { code, int(d.epoch), int(born()), int(l.released) }
