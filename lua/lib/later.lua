--- @include "lib/consumer"
-- What waits for its time, by Redis' clock. `later` has the moment of each: `<id>` of a message that was sent for later, and
-- `<subscription>|<id>` of a delivery that failed, or was given back, for later. What was read of it is held by LATER.
local MOST_LATER_MS = 31622400000 -- 366 days
local DUE_SOON_MS = 1000
local MAX_TIMED = 16 -- consumers that hear when the next is due

-- The moment of the earliest is a rule while there is one: other destinations ask for nothing. How many wait is for people.
local function note_next_due()
  local first = tonumber(redis.call('ZRANGE', K_LATER, 0, 0, 'WITHSCORES')[2])
  if first then
    redis.call('HSET', K_DESTINATION, 'next_due', int(first), 'later', int(redis.call('ZCARD', K_LATER)))
  elseif d.next_due then
    redis.call('HDEL', K_DESTINATION, 'next_due', 'later')
  end
  if not first ~= not d.next_due then
    redis.call('HSET', K_DESTINATION, 'rules', name_rules())
  end
  d.next_due = first
end

-- Notes what becomes of those with these moments, and how many have the same one after the other.
local function note_dues(fate, dues)
  local n = 0
  for i, due in ipairs(dues) do
    n = n + 1
    if dues[i + 1] ~= due then
      note('later', fate, int(n), int(due))
      n = 0
    end
  end
end

-- What is due at the same moment comes in the order of its numbers, as far as a score can tell them apart.
local function in_line(due, member)
  local number = tonumber(string.match(member, '(%d+)%-%d+$'))
  return string.format('%.4f', due + math.floor(number / 16) % 4096 / 4096)
end

-- Has new members of `later` wait.
local function wait_until(members, dues)
  local add = { 'ZADD', K_LATER }
  for i, member in ipairs(members) do
    add[2 * i + 1], add[2 * i + 2] = in_line(dues[i], member), member
  end
  if #members > 0 then
    redis.call(unpack(add))
    note_dues('waits', dues)
    note_next_due()
  end
end

-- They wait no more, for they are gone.
local function forget_later(members)
  local dues = {}
  for _, member in ipairs(d.next_due and members or {}) do
    local due = redis.call('ZSCORE', K_LATER, member)
    if due then
      redis.call('ZREM', K_LATER, member)
      dues[#dues + 1] = math.floor(due)
    end
  end
  if #dues > 0 then
    note_dues('gone', dues)
    note_next_due()
  end
end

-- The moments of that many messages, as a call says them one after the other: `<ms>` from now, `@<ms>`, or `-` for now; nil
-- where it says nothing. What is in the past is false.
local function dues_of(text, count)
  if text == '' then
    return nil
  end
  local dues = {}
  for at, ms in string.gmatch(text, '(@?)([%d-]+)') do
    local due = math.min((tonumber(ms) or 0) + (at == '' and now_ms or 0), now_ms + MOST_LATER_MS)
    dues[#dues + 1] = due > now_ms and due
  end
  for i = #dues + 1, count do
    dues[i] = false
  end
  return dues
end

-- Of messages that were stored just now, those for later.
local function send_later(ids, dues)
  local members, moments = {}, {}
  for i, id in ipairs(ids) do
    if dues[i] and ids[i] then -- nobody wants one without an id
      members[#members + 1], moments[#moments + 1] = id, dues[i]
    end
  end
  wait_until(members, moments)
end

-- Milliseconds until the next is due, for one that waits for messages: 0 where others look then, or that is not soon.
local function due_soon_ms(cid)
  if not d.next_due or d.next_due - now_ms > DUE_SOON_MS then
    return 0
  end
  local rank = redis.call('ZRANK', K_HUNGRY, cid)
  return rank and rank < MAX_TIMED and math.max(1, d.next_due - now_ms) or 0
end

local function count_later()
  return d.next_due and redis.call('ZCARD', K_LATER) or 0
end

-- Adds to the deliveries of a subscription that is removed those that wait, up to that many.
local function and_set_aside(sub, ids, most)
  if not d.next_due or #ids == most then
    return ids
  end
  local members = {}
  for i, id in ipairs(pending_ids(sub, LATER, most - #ids)) do
    ids[#ids + 1], members[i] = id, sub .. '|' .. id
  end
  forget_later(members)
  return ids
end
