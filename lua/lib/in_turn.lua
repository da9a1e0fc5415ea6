--- @include "lib/aside"
--- @include "lib/filing"
-- Of a queue with the rule `fair_by`: its keys take turns, or are bands of priority. In `rota` each key is scored with its next
-- turn. The group of the stream stands behind all that is sorted so, up to number `sorted`.
local MAX_SORTED = 256
local MOST_SORTED = 4194304
local turns -- functions, made when they are needed: most destinations have no such rule

local function in_turn()
  if turns then
    return turns
  end
  turns = filing()

  local function note_sorted(seq)
    if d.sorted ~= seq then
      d.sorted = seq
      redis.call('HSET', K_DESTINATION, 'sorted', int(seq))
    end
  end

  function turns.begin()
    redis.call('DEL', K_FAIR, K_ROTA)
    note_sorted(0)
  end

  -- Sorts a piece of what is not: it was there before the rule was, or came over a script that knows none.
  function turns.sort()
    if not d.fair_by or d.sorted == d.message_seq or redis.call('HEXISTS', K_SUBSCRIPTIONS, 'queue') == 0 then
      return
    end
    local most = math.max(1, math.min(MAX_SORTED, math.floor(MOST_SORTED / math.max(1, d.largest_bytes))))
    local reply = redis.call('XREADGROUP', 'GROUP', 'queue', IN_TURN, 'COUNT', int(most), 'NOACK', 'STREAMS', K_MESSAGES, '>')
    local entries = reply and reply[1] and reply[1][2] or {}
    turns.file((timely('queue', entries)))
    d.more = #entries == most
    note_sorted(d.more and tonumber(string.match(entries[most][1], '^%d+')) or d.message_seq)
  end

  -- Sorts what was appended just now after number `before`: at once, where all before it is sorted, but for what is due later.
  function turns.added(before, ids, keys, dues)
    if d.sorted ~= before or redis.call('HEXISTS', K_SUBSCRIPTIONS, 'queue') == 0 then
      turns.sort()
    elseif #ids > 0 then
      redis.call('XGROUP', 'SETID', K_MESSAGES, 'queue', ids[#ids])
      turns.put(keys, aside_of(keys, ids, dues))
      note_sorted(d.message_seq)
    end
  end

  -- Puts deliveries that came back where they were: before all others of their keys.
  function turns.back(ids)
    local entries = {}
    for _, id in ipairs(ids) do
      entries[#entries + 1] = redis.call('XRANGE', K_MESSAGES, id, id)[1]
    end
    turns.file(entries)
  end

  return turns
end
