--[[
  link_read - let go at the source what the target has for good, and read what comes after; nothing read is removed.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id        run    the server's run id as the caller learnt it when it connected
  ARGV[2] link          id     id of the link
  ARGV[3] fence         size   number of the caller's lease on the link
  ARGV[4] born          total  which destination of this name the caller means, as link_open answered
  ARGV[5] mark          total  number of the last message that the target has for good; up to it they are accepted
  ARGV[6] after         total  number of the last message that the caller has, at least the target's mark: later ones
                               are read
  ARGV[7] max_messages  total  most to return, 0 reads nothing
  ARGV[8] max_bytes     total  the same; a larger message is returned when it is the only one
  ARGV[9] how           'works' or 'ends'  'ends': the mark is the target's last, for it knows this lease and takes nothing
                               of an earlier one; so what the link gives back keeps its numbers, and its place
  ARGV[10] beyond       text to 4608   numbers above the mark that the target has for good too, up to 255, growing, with blanks
                                       between: accepted once nothing is left up to the mark; '-' for none
  Returns {code, epoch, released, again_ms, {id, ttl_ms, path, body, ...}, need, want}; again_ms: when there will be more, 0 when that
           is not known; ttl_ms: to the message's end, 'never' for none, and '+<ms>' behind it until it is due, where it is not; path: places that it came through; need, want: as of settle
  Codes    OK, MORE (some up to the mark, or to `after`, are left: call again), UNKNOWN, CLOSED (open it first), FENCED (a later lease; its
           number follows epoch), BORN (another destination of this name; its number follows epoch)
]]
--- @include "lib/orphans"
--- @include "lib/deliver"
--- @include "lib/renumber"
--- @include "lib/link"
--- @include "lib/held_beyond"
--- @include "lib/in_hand"
local link, fence, mark, after = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
local most, most_b = math.min(tonumber(ARGV[7]), MAX_DELIVERED), tonumber(ARGV[8])
local cid = link .. '.1'
local BACK_BYTES = 1048576 -- of those that came back, in one call
local BESIDE_MS = 1000 -- others hold what it waits for: it does not rest for longer, as it would at an empty source

if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
end
local c, l = read_consumer(cid), read_source(link)
if not c or (d.orphans > 0 and redis.call('ZSCORE', K_ORPHANS, cid)) then
  return { 'CLOSED', int(d.epoch) }
elseif fence < l.fence then
  return { 'FENCED', int(d.epoch), int(l.fence) }
elseif born() ~= tonumber(ARGV[4]) then
  return { 'BORN', int(d.epoch), int(born()) }
end

redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: a full Redis can always drain
d.caller = link -- a session of its name, if it is late, ends in another's call: its consumer is what reads here
local reaped, ids = reap(), {}
for i, entry in ipairs(redis.call('XPENDING', K_MESSAGES, c.sub, '-', int(mark), MAX_DELIVERED, cid)) do
  ids[i] = entry[1]
end
if #ids == 0 then ids = held_beyond(c.sub, cid, mark, ARGV[10]) end
local code, settled, settled_b, freed, freed_b = 'OK', settle_ids(c.sub, ids, true)
c.settled, c.settled_b = c.settled + settled, c.settled_b + settled_b
if #ids == MAX_DELIVERED then
  code, mark = 'MORE', tonumber(string.match(ids[#ids], '^(%d+)'))
end
local grows, read_to = mark > l.released, l.taken
l.fence, l.released, l.taken = fence, math.max(l.released, mark), math.max(l.taken, after, mark)
if ARGV[9] == 'ends' and code == 'OK' then -- else the next reader would get it after what was never read
  l.taken = l.released
end
if most > 0 and (d.returned > 0 or d.fair) and c.sub == 'queue' then -- who reads nothing more may be giving back what it held
  renumber_returned(c.sub, l.taken)
end

local entries, delivered, delivered_b, again_ms = {}, 0, 0, 0
if most > 0 then
  local hand, bytes = in_hand(c.sub, cid, after, most), 0
  entries, bytes = within_bytes(hand, most_b)
  if #entries == 0 or (#entries < most and bytes < most_b) then
    local before, fresh = c.delivered, {}
    c.after = d.fair and c.sub == 'queue' and int(read_to) .. ANY_SIZE or nil
    local _, _, new_b, due_ms = deliver(cid, c, most - #entries, most_b - bytes, 1, fresh)
    local back = #fresh > 0 and tonumber(string.match(fresh[#fresh][1], '^%d+')) <= after
    if back then -- a failover brought back what the target has: perhaps much, which the next calls let go of
      local _, _, more_b = deliver(cid, c, MAX_DELIVERED, BACK_BYTES, 1, {})
      code, new_b = 'MORE', new_b + more_b
    end
    delivered, delivered_b, again_ms = c.delivered - before, new_b, due_ms
    entries = within_bytes(#hand == 0 and not back and fresh or in_hand(c.sub, cid, after, most), most_b)
    local reached = tonumber(string.match(c.after or '0', '^%d+'))
    l.taken = back and c.after and reached or math.max(l.taken, reached)
    if #entries == 0 and again_ms == 0 and is_beside(c) then
      seek(c)
      again_ms = BESIDE_MS
    end
    again_ms = again_ms > 0 and again_ms or due_soon_ms(cid)
  end
end
local out, n = {}, 0
for _, entry in ipairs(entries) do
  local life, path = carried(entry[2])
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = entry[1], life, path, entry[2][2]
  n = n + 4
end
if n > 0 then
  l.taken = math.max(l.taken, tonumber(string.match(out[n - 3], '^(%d+)')))
end
if freed > 0 or reaped or d.expired then
  hand_over()
end
save_source(link, l)
save_consumer(cid, c)
if grows then
  tell_released(link, l.released)
end
if settled > 0 or delivered > 0 or #notes > 0 then
  note('settled', int(settled_b), int(settled))
  note('fetched', int(delivered_b), int(delivered))
  note('released', link, int(l.released))
  write_ledger('settle', cid, freed_b, freed, 0)
end
save_destination()
return { code, int(d.epoch), int(l.released), int(again_ms), out, unpack(d.lacks or {}) }
