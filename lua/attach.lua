--[[
  attach - open a consumer of a subscription, or say that one lives on; repeated, it changes nothing but the window.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id        run      the server's run id as the caller learnt it when it connected
  ARGV[2] session       id       of the caller
  ARGV[3] number        1 to 64  k of the consumer '<session>.<k>'
  ARGV[4] ttl_ms        ttl      length of the lease
  ARGV[5] subscription  name     'queue' for a queue
  ARGV[6] durable       0 to 1   '1' keeps the subscription when its last consumer goes, '0' does not
  ARGV[7] window        window   as the operator reads it, '<messages>/<bytes>'
  ARGV[8] selector      '=' or selector  of a topic, what the subscription wants of its messages: the selector, encoded; '#' and a hash of one
                                that is long; nothing for all; '=' for what it wants already
  Returns {code, epoch}
  Codes    OK, UNKNOWN, KIND (a gate or a bucket has no messages; the kind follows), GONE (the consumer or
           the subscription is being removed, a piece a call: try again), FULL (the topic has as many subscriptions as
           it may; their number follows epoch), SELECTOR (the subscription has consumers and wants other messages; without
           consumers it is removed with all it has, GONE, and made anew)
]]
--- @include "lib/attach"
local run_id, sid, k, ttl_ms, sub = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local durable, window, selector = tonumber(ARGV[6]), ARGV[7], ARGV[8]
local cid = sid .. '.' .. int(k)

if not load_destination(run_id, ttl_ms) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'queue' and d.kind ~= 'topic' then
  return { 'KIND', d.kind }
end
if d.kind == 'queue' then
  sub, durable, selector = 'queue', 1, '='
end

d.grows, d.caller = true, sid
if reap() then
  hand_over()
end
local subscription = read_subscription(sub)
local otherwise = subscription and subscription.till == 0 and selects_otherwise(sub, selector)
local shared = otherwise and subscription.consumers > 0
if otherwise and not shared then
  end_subscription(sub, subscription)
end
local full = filled_at(subscription)
if full or shared or redis.call('ZSCORE', K_ORPHANS, cid) or (subscription and subscription.till > 0) then
  if #notes > 0 then
    write_ledger('attach', cid, 0, 0, 0)
  end
  save_destination()
  return full and { 'FULL', int(d.epoch), int(full) } or { shared and 'SELECTOR' or 'GONE', int(d.epoch) }
end
local s = read_session(sid)
if not s then
  s = new_session(0, ttl_ms) -- no producer's account yet
end
s.consumers = math.max(s.consumers, k)
renew(sid, s, ttl_ms)
save_session(sid, s)
local c = place_consumer(cid, sub, durable)
select_by(sub, selector)
local judged = set_window(cid, c, window)
if judged then
  hand_over() -- where the last active consumer was paused, no limit binds any more
  if is_above() then
    recall() -- where the first began, they bind what was granted before
  end
end
if #notes > 0 then
  write_ledger('attach', cid, 0, 0, 0)
end
save_destination()
return { 'OK', int(d.epoch) }
