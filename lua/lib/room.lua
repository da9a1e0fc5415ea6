--- @include "lib/session"
--- @include "lib/ledger"
--- @include "lib/oversize"
-- What a destination that learns may grant: credit that was claimed in this epoch, and given back since. Whatever else is
-- forgotten, passing that on has nobody hold more than all did.
local function given_back()
  local epoch, bytes, messages = string.match(redis.call('HGET', K_DESTINATION, 'given_back') or '', '^(%d+) (%d+) (%d+)$')
  if epoch ~= int(d.epoch) then
    return 0, 0
  end
  return tonumber(bytes), tonumber(messages)
end

local function add_given_back(bytes, messages)
  local before, before_m = given_back()
  redis.call('HSET', K_DESTINATION, 'given_back',
    int(d.epoch) .. ' ' .. int(math.max(0, before + bytes)) .. ' ' .. int(math.max(0, before_m + messages)))
end

-- How much is free, whoever may hold it without being known yet.
local function whole_room()
  if d.stopped or (d.shut == 1 and not d.unbound) then
    return 0, 0
  end
  return math.min(whole_bytes(), d.slice_bytes) - d.pending_bytes - d.leased_bytes,
    math.min(d.limit_messages, d.slice_messages) - d.pending_messages - d.leased_messages
end

-- How much may be granted, and how much of it to one session. Nothing here makes pending + leased exceed the limit, but
-- for the one message above the whole limit that `oversize` lets go alone.
local function room()
  local free, free_m = whole_room()
  if now_ms < d.learning_until then
    local back, back_m = given_back()
    return math.min(free, back), d.limit_messages == math.huge and free_m or math.min(free_m, back_m)
  end
  return free, free_m
end

-- Hysteresis: from the moment that somebody finds no room until pending is down to where the policy resumes. Of slices their pools
-- say so.
local function shut_when_full()
  if d.unbound or d.of_slices then
    return
  end
  if (d.resume_bytes and d.pending_bytes > d.resume_bytes) or (d.resume_messages and d.pending_messages > d.resume_messages) then
    d.shut = 1
    redis.call('HSET', K_DESTINATION, 'shut', '1')
  end
end

local function resume_when_drained()
  if d.shut == 1 and not d.of_slices and d.pending_bytes <= (d.resume_bytes or math.huge) and d.pending_messages <= (d.resume_messages or math.huge) then
    d.shut = 0
    redis.call('HDEL', K_DESTINATION, 'shut')
  end
end

local function too_large(bytes, messages)
  return (bytes > whole_bytes() and d.oversize ~= 'allow-one') or messages > d.limit_messages
end

-- Of a gate with a shadow limit nobody gets more in hand than that would leave to each.
local function shadow_most(name, limit)
  local most = d.kind == 'gate' and string.match(';' .. (d.shadow or ''), ';' .. name .. ' at_once (%d+)')
  return most and math.min(limit, tonumber(most)) or limit
end

local function share(limit, weight)
  return limit == math.huge and limit or math.floor(limit * weight / math.max(d.weight, weight, 1))
end

-- Raise one total towards `want`, within the room, and never above the fair share unless the head message needs it.
local function raise(granted, held_now, want, need, free, cap)
  return math.max(0, math.min(want - granted, free, math.max(cap - held_now, need - granted)))
end

-- Grant session `s` what it wants if what it needs fits; returns whether its need is met now, and the bytes that it can use of
-- what it was granted: where messages are few, a whole window of bytes would cost it many turns.
local function grant(sid, s)
  local free, free_m = room()
  local lacks, lacks_m = s.need - s.granted, s.need_m - s.granted_m
  local alone = lacks > math.max(0, free) and goes_alone(s)
  if (lacks > 0 and lacks > free and not alone) or (lacks_m > 0 and lacks_m > free_m) then
    return false
  end
  local held_b, held_m = held(s)
  -- Other slices have as many sessions, about.
  local slices = d.of_slices or 1
  local cap = share(shadow_most('bytes', d.limit_bytes) / slices, s.weight)
  local more = alone and lacks or raise(s.granted, held_b, math.max(s.want, s.need), s.need, free, cap)
  local more_m = raise(s.granted_m, held_m, s.want_m, s.need_m, free_m,
    share(shadow_most('messages', d.limit_messages) / slices, s.weight))
  if more > 0 or more_m > 0 then
    s.granted, s.granted_m = s.granted + more, s.granted_m + more_m
    d.leased_bytes, d.leased_messages = d.leased_bytes + more, d.leased_messages + more_m
    if alone and d.of_slices then
      redis.call('HSET', K_DESTINATION, 'ticket', sid .. ' ' .. int(s.granted), 'went_alone', int(read_slice(d.slices_pool).granted))
    end
    if now_ms < d.learning_until then
      add_given_back(-more, -more_m)
    end
    note('grant', sid, int(s.granted), int(s.granted_m))
  end
  local usable = d.limit_messages < math.huge and (s.need - s.used - s.returned) * (held_m + more_m) or more
  return true, math.max(0, math.min(more, usable))
end
