--- @include "lib/limiter_keys"
--- @enclose
-- The records of the holds that a call meets, and when their leases are looked at: read at once, and written at once.
local MAX_HOLDS = 1000000
local MANY = 16 -- holds that one call writes
local hold_count
local texts, changed, leases = {}, {}, {} -- false: there is none
local grown = 0 -- holds more than there were

local function read_holds(ids)
  for i, text in ipairs(#ids > 0 and redis.call('HMGET', K_HOLDS, unpack(ids)) or {}) do
    texts[ids[i]] = text
  end
end

-- Those that the operations of `admit` are about.
local function read_holds_of_call()
  local ids = {}
  for at = 6, #ARGV, 6 do
    ids[#ids + 1] = ARGV[at]
  end
  read_holds(ids)
end

local function store_hold(id, text)
  grown = grown + (texts[id] and 0 or 1)
  texts[id], changed[id] = text, true
end

local function forget_hold(id)
  grown = grown - (texts[id] and 1 or 0)
  texts[id], changed[id], leases[id] = false, true, false
end

local function write_all(command, key, values)
  if #values > 0 then
    redis.call(command, key, unpack(values))
  end
end

local function save_holds()
  local set, del, add, rem = {}, {}, {}, {}
  for id in pairs(changed) do
    if texts[id] then
      set[#set + 1], set[#set + 2] = id, texts[id]
    else
      del[#del + 1] = id
    end
  end
  for id, ms in pairs(leases) do
    if ms then
      add[#add + 1], add[#add + 2] = ms, id
    else
      rem[#rem + 1] = id
    end
  end
  if #set > 2 * MANY then -- Redis keeps a few as lists, which it looks through for each; one long entry ends that
    local long = string.rep('-', 65)
    redis.call('HSET', K_HOLDS, long, '')
    redis.call('HDEL', K_HOLDS, long)
    redis.call('ZADD', K_LEASES, 0, long)
    redis.call('ZREM', K_LEASES, long)
  end
  write_all('HSET', K_HOLDS, set)
  write_all('HDEL', K_HOLDS, del)
  write_all('ZADD', K_LEASES, add)
  write_all('ZREM', K_LEASES, rem)
end

-- How many more there may be.
local function room_for_holds()
  hold_count = hold_count or redis.call('HLEN', K_HOLDS)
  return MAX_HOLDS - hold_count - grown
end
