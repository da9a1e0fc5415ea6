--- @include "lib/credit"
-- Opening, claiming and giving back: what happens to one session's account before it asks for more.

-- While the destination learns, holders that know an older epoch get back exactly what they claim. Not a moment longer:
-- what was not claimed is granted to others from then on.
local function claims_open(epoch)
  return epoch > 0 and epoch < d.epoch and now_ms < d.learning_until
end

-- Whether all that was granted to the caller is granted here: else its account was reclaimed, or a failover lost some of it.
local function is_known(s, inc, claim)
  local granted, granted_m = 0, 0
  if s and s.inc == inc then
    granted, granted_m = s.granted, s.granted_m
  end
  return claim.granted <= granted and claim.granted_m <= granted_m
end

-- The totals of incarnation `inc` with what is claimed, whatever is claimed never less than nothing in hand.
local function with_claim(s, inc, claim)
  local known = s and s.inc == inc
  local totals = {}
  for name, value in pairs(claim) do
    totals[name] = math.max(value, known and s[name] or 0)
  end
  totals.used, totals.used_m = math.min(totals.used, totals.granted), math.min(totals.used_m, totals.granted_m)
  totals.returned = math.min(totals.returned, totals.granted - totals.used)
  totals.returned_m = math.min(totals.returned_m, totals.granted_m - totals.used_m)
  totals.epoch = nil
  return totals
end

-- A failover may bring back messages that were settled; with them, not every claim may still fit under the limit.
local function claim_fits(s, inc, claim)
  local free, free_m = whole_room()
  local before, before_m = 0, 0
  if s then
    before, before_m = held(s)
  end
  local after, after_m = held(with_claim(s, inc, claim))
  return after - before <= math.max(0, free) and after_m - before_m <= math.max(0, free_m)
end

local function add_lease(s, bytes, messages)
  d.leased_bytes, d.leased_messages = d.leased_bytes + bytes, d.leased_messages + messages
end

local function restore_claim(sid, s, claim)
  local before, before_m = held(s)
  for name, value in pairs(with_claim(s, s.inc, claim)) do
    s[name] = value
  end
  local after, after_m = held(s)
  add_lease(s, after - before, after_m - before_m)
  if after ~= before or after_m ~= before_m then
    note('claim', sid, int(s.granted), int(s.granted_m))
  end
end

-- The session's account for incarnation `inc`: the one there is, or a new one; an older incarnation's credit is freed.
local function open_account(sid, s, inc, ttl_ms, claim)
  if s and s.inc < inc then
    local bytes, messages = held(s)
    add_lease(s, -bytes, -messages)
    d.weight = d.weight - s.weight
    leave_line(sid)
    local fresh = new_session(inc, ttl_ms)
    fresh.consumers = s.consumers
    s = fresh
    note('reopen', sid, int(bytes), int(messages))
  elseif not s then
    s = new_session(inc, ttl_ms)
    note('open', sid)
  end
  if claims_open(claim.epoch) then
    restore_claim(sid, s, claim)
  end
  return s
end

local function give_back(s, claim)
  local held_b, held_m = held(s)
  local bytes = math.max(0, math.min(held_b, claim.returned - s.returned))
  local messages = math.max(0, math.min(held_m, claim.returned_m - s.returned_m))
  if bytes == 0 and messages == 0 then
    return false
  end
  s.returned, s.returned_m = s.returned + bytes, s.returned_m + messages
  add_lease(s, -bytes, -messages)
  if now_ms < d.learning_until and claim.epoch == d.epoch then
    add_given_back(bytes, messages)
  end
  note('return', int(bytes), int(messages))
  return true
end

-- What is in hand and of no use: its holder waits in line for all that it needs, this as well.
local function void_credit(s)
  local bytes, messages = held(s)
  s.returned, s.returned_m = s.returned + bytes, s.returned_m + messages
  add_lease(s, -bytes, -messages)
  note('return', int(bytes), int(messages))
end

local function enrol(s, weight)
  d.weight = d.weight + weight - s.weight
  s.weight = weight
end
