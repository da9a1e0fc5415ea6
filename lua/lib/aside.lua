--- @include "lib/later"
-- Deliveries that were read before they are due are set aside, in the hands of LATER.
local MAX_PASSED_OVER = 256 -- messages, and bytes, that a fetch sets aside beside those that it gets
local MOST_PASSED_OVER = 4194304

local function due_of(fields)
  for i = 3, #fields, 2 do
    if fields[i] == 'd' then
      return tonumber(fields[i + 1])
    end
  end
end

-- Puts deliveries of a subscription into the hands of LATER, whoever had them.
local function set_aside(sub, ids)
  local claim = { 'XCLAIM', K_MESSAGES, sub, LATER, 0 }
  for i, id in ipairs(ids) do
    claim[5 + i] = id
  end
  claim[#claim + 1] = 'FORCE'
  claim[#claim + 1] = 'JUSTID'
  if #ids > 0 then
    redis.call(unpack(claim))
  end
end

-- Of messages of a queue that were stored just now: those that are due, and their keys alone; the others are set aside.
local function aside_of(keys, ids, dues)
  local early = {}
  for i = dues and #ids or 0, 1, -1 do
    if dues[i] then
      early[#early + 1] = table.remove(ids, i)
      table.remove(keys, i)
    end
  end
  set_aside('queue', early)
  return ids
end

-- Takes messages that come now out of `later`; returns the moments of those that were still there.
local function no_longer_waiting(ids, dues)
  local there, met = {}, {}
  for i, score in ipairs(#ids > 0 and redis.call('ZMSCORE', K_LATER, unpack(ids)) or {}) do
    if score then
      there[#there + 1], met[#met + 1] = ids[i], dues[i]
    end
  end
  if #there > 0 then
    redis.call('ZREM', K_LATER, unpack(there))
  end
  return met
end

-- Of entries that were just read: those whose time has come; the others are set aside. Returns also how many of these the
-- fetch need not count.
local function timely(sub, entries)
  if not d.next_due then
    return entries, 0
  end
  local now, early, late, come, met = {}, {}, {}, {}, {}
  local before = d.passed_over or 0
  for _, entry in ipairs(entries) do
    local id, due = entry[1], due_of(entry[2])
    if due and due > now_ms then
      early[#early + 1] = id
      d.passed_b = (d.passed_b or 0) + #entry[2][2]
      if redis.call('ZADD', K_LATER, 'NX', in_line(due, id), id) == 1 then -- the clock was set back since it was due
        late[#late + 1] = due
      end
    else
      now[#now + 1] = entry
      if due and d.kind == 'queue' then
        come[#come + 1], met[#met + 1] = id, due
      end
    end
  end
  set_aside(sub, early)
  met = no_longer_waiting(come, met)
  note_dues('waits', late)
  note_dues('due', met)
  note_next_due()
  if before + #early >= MAX_PASSED_OVER or (d.passed_b or 0) >= MOST_PASSED_OVER then
    return now, 0 -- and so it is called again
  end
  d.passed_over = before + #early
  return now, #early
end

-- Of deliveries that come back: those whose time has come. A link may have had the others before.
local function none_early(sub, ids)
  local now, early = {}, {}
  for _, id in ipairs(ids) do
    local due = redis.call('ZSCORE', K_LATER, id)
    local list = due and math.floor(due) > now_ms and early or now
    list[#list + 1] = id
  end
  set_aside(sub, early)
  return now
end
