--[[
  admit - everything that one session does with its holds of a limiter: admits, settles, renews, releases, claims.

  All limits of the limiter, and those of the key, are decided at once: what waits or is refused took nothing of any of them.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id   run        the server's run id as the caller learnt it when it connected
  ARGV[2] session  id         of the caller
  ARGV[3] seq      total      number of this call, counted by the session from 1; repeated, it gets the stored reply. 0: a call
                              without operations, that only sweeps and serves the line
  ARGV[4] epoch    total      as last seen, 0 at first
  ARGV[5..] op, id, key, amounts, ttl_ms, wait_ms  up to 128 of 'admit', 'settle', 'release', 'renew', 'claim' or 'sample'; hold; '*' or name; amounts; ttl; ms
                              `amounts` are <limit>=<number>,... or '-'; `wait_ms` 0: refused where it cannot be held now.
                              'sample' has <ok, us, squares, over, late, busy, ignored>=<number>,...: how holds ended
  Returns {code, epoch, answer, ...}; for each operation 'held', 'wait <us> <limit> <all|key>' (to ask again then; above a second: when there is room at the soonest), 'late <us or -> <limit> <all|key>', 'hopeless <us> <limit> <all|key>', 'shed <band> <thousandths> <limit> <all|key>',
           'never <most> <limit> <all|key>', 'moved' (the key is pinned to another slice), 'parts' (its part of limits of all keys is to be taken, or renewed, at the first slice; for the first '&' says that it is), 'limit <name>', 'key', 'keys', 'holds', 'ok', 'again' or 'gone'. Without
           operations ms until a lease ends, or 0 to call again at once
  Codes    OK, STALE (a newer call was here), UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/admitting"
--- @include "lib/sampling"
--- @include "lib/sweeping"
local run_id, sid, seq = ARGV[1], ARGV[2], tonumber(ARGV[3])
local frees, reply, receipt, waiting, lapsed = seq == 0, {}, { ARGV[3] }, {}, 0

-- For one that stood in line when its turn in the call came.
local function tell_waiter(id)
  local h = read_hold(id)
  if not h or h.state == 'H' then return h and 'held' or 'gone' end
  local soonest, limit, whose = what_binds(h.key, h.amounts)
  limit, whose = limit or behind[id] or 'line', whose or 'all'
  if joined[id] then
    note('waits', id, of_ledger(h.key), limit, whose, for_ledger(without_band(h.amounts)))
    if part_of_line(h.amounts) > 0 then
      note('band', id, band_of(h.amounts))
    end
  end
  soonest = soonest and soonest > POLL_US and soonest -- were nobody before it; what is sooner than a poll would be asked for
  return table.concat({ 'wait', int(due[id] or soonest or until_lease_us()), limit, whose }, ' ')
end

-- Decides an operation, and those after it that are decided together with it.
local function do_one(at, op, id, key, text, ttl_ms)
  limiter.late = op == 'admit' and limiter.late or nil
  local count = op == 'admit' and together.admit(at) or op == 'release' and together.release(at) or 0
  local answer = count > 0 and (op == 'admit' and 'held' or 'ok')
  if count == 0 and op == 'admit' then
    local wait_ms = tonumber(ARGV[at + 5])
    answer = together.refuse_alike(id, key, text, wait_ms) or try_to_admit(id, key, text, ttl_ms, wait_ms)
    waiting[#receipt] = not answer and id or nil
    limiter.refused = limiter.refused + (answer and answer ~= 'held' and 1 or 0)
  elseif count == 0 then
    answer = do_other(op, id, key, text, ttl_ms, tonumber(ARGV[4]))
  end
  for _ = 1, math.max(count, 1) do
    receipt[#receipt + 1] = answer or ''
  end
end

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
end
limiter.stood = d.blocked > 0 -- whether anybody waited before this call
local stored = seq > 0 and redis.call('GET', K_RECEIPT)
local last = stored and tonumber(string.match(stored, '^%d+')) or 0
if seq > 0 and seq <= last then
  reply = { seq == last and 'OK' or 'STALE', int(d.epoch) }
  for answer in string.gmatch(seq == last and stored or '', '\n([^\n]*)') do
    reply[#reply + 1] = answer
  end
  return reply
end
for at = 5, #ARGV, 6 do
  frees = frees or (ARGV[at] ~= 'admit' and ARGV[at] ~= 'sample')
end
redis.call(frees and 'HDEL' or 'HSET', K_DESTINATION, unpack(frees and { '-' } or { 'kind', 'limiter' })) -- see rule 2
read_holds_of_call()
if limiter.course then adapting.step() end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', K_LEASES, '-inf', int(limiter.now_ms), 'LIMIT', 0, MAX_LAPSED)) do
  lapse(id)
  lapsed = lapsed + 1 -- as many as may be: there may be more
end
if d.blocked > 0 then
  serve_line()
end
for at = 5, #ARGV, 6 do
  if ARGV[at] == 'sample' then
    receipt[#receipt + 1] = adapting.hear(ARGV[at + 1], ARGV[at + 3])
  elseif #receipt == (at + 1) / 6 then -- else it was decided together with one before it
    do_one(at, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]))
  end
end
if d.blocked > 0 then
  serve_line()
end
for i, id in pairs(waiting) do receipt[i + 1] = tell_waiter(id) end
if next(joined) and d.blocked > 0 then
  wake_all('recall')
end
note_refusals()
if #notes > 0 then
  note('levels', for_ledger(levels_text(limiter.levels)))
  if limiter.skew > 0 then
    note('clock', int(limiter.now_ms))
    table.insert(notes, 1, table.remove(notes))
  end
  write_ledger('admit', sid, 0, 0, 0)
end
save_would_wait()
if limiter.banded then save_clocks() end
by_band.save()
if limiter.pace then save_pace() end
save_holds()
local more = sweeping.look(seq == 0 and MAX_SWEPT or 1)
save_limiter()
if limiter.has_looked then sweeping.give_back_table() end
if seq == 0 then
  local first = tonumber(redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')[2]) or limiter.now_ms + 60000
  return { 'OK', int(d.epoch), int((more or lapsed == MAX_LAPSED) and 0 or math.max(1, first - limiter.now_ms)) }
end
redis.call('SET', K_RECEIPT, table.concat(receipt, '\n'), 'PX', 60000)
receipt[1] = int(d.epoch)
table.insert(receipt, 1, 'OK')
return receipt
