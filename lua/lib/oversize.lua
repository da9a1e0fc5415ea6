--- @include "lib/session"
--- @include "lib/hot"
--- @include "lib/wake"
-- One message above the whole limit, which `oversize` lets go alone.
-- Bytes of the limit that whole messages may take: of a topic that spools, the rest is kept for copies. References have a
-- limit of their own.
local function whole_bytes()
  return d.store and d.limit_bytes - hot_share() or d.limit_bytes
end

local function needs_more_than_all(s)
  return d.oversize == 'allow-one' and s.need - s.used - s.returned > whole_bytes()
end

-- What the first in the caller's line needs, a message of `size` bytes where that is known. One that is above the whole limit by
-- itself, and not together with what its session has paid, wants nothing: by that it is known later.
local function set_needs(s, need, need_m, want, want_m, size)
  s.need, s.need_m, s.want, s.want_m = need, need_m, math.max(want, need), math.max(want_m, need_m)
  if needs_more_than_all(s) and (need - s.used - s.returned == size or held(s) == 0) then
    s.want = 0
  end
end

local function is_oversize(s)
  return needs_more_than_all(s) and s.want < s.need
end

local function is_all_there_is(s)
  return not d.stopped and d.pending_bytes == 0 and d.leased_bytes == held(s)
end

-- Slices of one destination take turns: what their pool lent for one such message is for no other, and goes back.
local function has_gone_alone(granted)
  return redis.call('HGET', K_DESTINATION, 'went_alone') == int(granted)
end

-- A message above the whole limit, when nothing is pending and nobody else holds credit. That nobody does at other slices, their pool
-- says: it lends that much to one alone.
local function goes_alone(s)
  return is_oversize(s) and is_all_there_is(s) and now_ms >= d.learning_until and s.need - s.used - s.returned <= d.slice_bytes
    and not (d.of_slices and has_gone_alone(read_slice(d.slices_pool).granted))
end

-- Whoever is first in line asks for what only the first asks for: pools, and what is idle in the hands of others. It hears that once it
-- is first, and with a message above the limit where pools lend, once nothing is left here.
local function tell_first(sid, s, caller)
  local has_freed = d.pending_bytes + d.leased_bytes < raw[12] + raw[14]
  if d.pools and has_freed and is_oversize(s) and is_all_there_is(s) then
    wake(sid, 'again')
  elseif d.moved and sid ~= caller and (d.pools or (d.leased_bytes > held(s) and math.abs(now_ms - d.recall_ms) >= 200)) then
    wake(sid, 'first')
  end
end
