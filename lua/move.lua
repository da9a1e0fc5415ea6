--[[
  move - the source's part as one message of a queue is moved by hand: take it out, and let go of it or put it back.

  The target's part is link_commit, so it stores a message once, and says which it has. Between the two the message is in
  `links`: nobody gets it, and it stays pending. Whoever takes the link up knows from the target's mark what to do with it.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run      the server's run id as the caller learnt it when it connected
  ARGV[2] link    id       id of the link that stands for all moves from here to that target
  ARGV[3] how     'begin', 'take' or 'end'  'begin' fences earlier calls off, 'take' takes the message out, 'end' frees what
                           was taken, up to the mark, and puts back what is above it
  ARGV[4] fence   total    as 'begin' answered; with 'begin' a number that the answer is to be above
  ARGV[5] mark    total    number of the last message that the target has for good; with 'begin' 0
  ARGV[6] id      '0' or message  of the message, with 'take'
  ARGV[7] target  name     encoded name of the target
  Returns {code, epoch, ...}; of 'begin' fence, born, number of what an earlier call took and did not end, 0 for none; of
           'take' number, ttl_ms and path as link_read has them, body; of 'end' bytes that were freed, messages
  Codes    OK, UNKNOWN, KIND (it is no queue; the kind follows), GONE (no such message is here), HELD (a consumer or a
           link has it; its id follows), COPIED (links copy from it), SPOOLED (its payload is in a store), FENCED (a
           later call is at work, or what an earlier one took has to be ended first)
]]
--- @include "lib/alone"
--- @include "lib/append"
--- @include "lib/moved"
local link, how, fence, mark, id = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'queue' then
  return { 'KIND', d.kind }
end
local l, moved = read_source(link), read_moved(link)
if how == 'begin' then
  l.fence = math.max(l.fence + 1, fence + 1, now_ms)
  if born() == 0 then
    redis.call('HSET', K_DESTINATION, 'born', int(now_ms))
  end
  save_source(link, l)
  save_destination()
  return { 'OK', int(d.epoch), int(l.fence), int(born()), int(moved and moved.seq or 0) }
elseif fence ~= l.fence then
  return { 'FENCED', int(d.epoch) }
elseif how == 'take' and moved then -- by this very call, whose answer was lost, or by another
  return moved.fence == fence and moved.was == id and reply_moved(link, moved) or { 'FENCED', int(d.epoch) }
end

if how == 'take' then
  local entry, who = find_alone(id)
  if not entry then
    return who and { 'HELD', who } or { 'GONE' }
  elseif d.subscriptions > 1 then
    return { 'COPIED' }
  elseif is_reference(entry[2][2]) then
    return { 'SPOOLED' }
  end
  redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- no effect but this: under OOM nothing is applied
  d.message_seq = math.max(d.message_seq, mark) + 1 -- above what the target skips
  moved = take_out(link, entry, fence, d.message_seq, ARGV[7])
  note('released', link, int(mark))
  write_ledger('remove', link, 0, 0, 0)
  save_destination()
  return reply_moved(link, moved)
end

if not moved then
  return { 'OK', int(d.epoch), 0, 0 }
end
local gone = mark >= moved.seq
if gone then
  redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
  d.pending_bytes, d.pending_messages = d.pending_bytes - moved.size, d.pending_messages - 1
  l.released = math.max(l.released, moved.seq)
  note('purge', int(moved.size), 1)
else
  redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- no effect but this: under OOM nothing is applied
  put_back_moved(link, moved)
end
note('released', link, int(l.released))
forget_moved(link)
save_source(link, l)
reap()
hand_over()
write_ledger('remove', link, gone and moved.size or 0, gone and 1 or 0, 0)
save_destination()
return { 'OK', int(d.epoch), int(gone and moved.size or 0), gone and 1 or 0 }
