--- @include "lib/rate"
-- Settings of a limiter are texts. Before `apply` writes anything they are read here, and refused where they mean nothing, or
-- where what follows from them would not stay exact.
local MOST_LIMITS = 16
local MOST_WEIGHTS = 256
local MOST_OFFSETS = 128
local MOST_WEIGHT = 1000
local MOST_ADAPTING = 1000000000 -- so that sums stay exact

local function whole(text, least, most)
  local number = text and string.find(text, '^%d+$') and #text <= 16 and tonumber(text)
  return number and number >= least and number <= most and number or nil
end

local function read_limit(form, first, second, third)
  local WINDOWS = { hour = 60, day = 1440, week = 10080, month = 40320 } -- minutes, of which a reset is at one
  if form == 'rate' and #first <= 30 and string.find(first, '^%d+%.?%d*e?[+-]?%d*$') and third == '' then
    local rate, burst = tonumber(first) or 0, whole(second, 1, MOST_COUNTED)
    if burst and rate >= 1e-9 and rate <= 1e15 and burst * 1000000 <= rate * MOST_OWED_US then
      return { form = form, rate = rate, burst = burst }
    end
  elseif form == 'at_once' and whole(first, 1, MOST_COUNTED) and second == '' then
    return { form = form }
  elseif form == 'at_once' and (third == 'aimd' or third == 'gradient') then
    local ceiling = whole(first, 1, MOST_ADAPTING)
    return ceiling and whole(second, 1, ceiling) and { form = form, adapts = true }
  elseif form == 'quota' and whole(first, 1, MOST_COUNTED) and WINDOWS[second] and whole(third, 0, WINDOWS[second] - 1) then
    return { form = form .. second .. int(third) }
  end
end

-- The limits of a text by name; nil where it is no text of such.
local function read_limits(text)
  local found, count, adapts = {}, 0, false
  for entry in string.gmatch(text == '' and '' or text .. ';', '([^;]*);') do
    local name, form, first, second, third = string.match(entry, '^([a-z][a-z0-9_]*) ([a-z_]+) ([^ ]+) ?([^ ]*) ?([^ ]*)$')
    local limit = name and #name <= 32 and not found[name] and read_limit(form, first, second, third)
    count = count + 1
    if not limit or count > MOST_LIMITS or (adapts and limit.adapts) then -- one: which of two was it that was too high?
      return nil
    end
    found[name], adapts = limit, adapts or limit.adapts
  end
  return found, adapts
end

local function are_weights(text, least, most)
  local count = 0
  for entry in string.gmatch(text == '' and '' or text .. ';', '([^;]*);') do
    count = count + 1
    if count > MOST_WEIGHTS or not whole(string.match(entry, '^[%w._~%%-]*%*?=(%d+)$'), least or 1, most or MOST_WEIGHT) then
      return false
    end
  end
  return true
end

-- Offsets from UTC, each from a moment on that is later than the one before.
local function is_zone(text)
  local count, last = 0, -1
  for from, offset in string.gmatch(text, '(%d+) %-?(%d+)') do
    count = count + 1
    if not whole(from, last + 1, 100000000000) or not whole(offset, 0, 86399) then
      return false
    end
    last = tonumber(from)
  end
  return text == '' or (count <= MOST_OFFSETS and string.gsub(text .. ' ', '%d+ %-?%d+ ', '') == '')
end

-- Whether both can be read, limits of one name are of one form, and none adapts that may not.
local function are_alike(of_all, of_keys, may_adapt)
  local limits, adapts = read_limits(of_all or '')
  local others, key_adapts = read_limits(of_keys or '')
  for name, limit in pairs(others or {}) do
    if limits and limits[name] and limits[name].form ~= limit.form then
      return false
    end
  end
  return limits and others and (may_adapt or not adapts) and not key_adapts
end

-- Limits of keys are of the form that limits of all together have under that name; those of other names limit nothing.
-- So are shadow limits, among themselves.
local function are_limiter_settings(settings)
  local stored = redis.call('HMGET', K_DESTINATION, 'limits', 'key_limits', 'shadow_limits', 'shadow_key_limits')
  local limits, of_keys = settings.limits or stored[1], settings.key_limits or stored[2]
  local shadows, shadows_of_keys = settings.shadow_limits or stored[3], settings.shadow_key_limits or stored[4]
  return are_alike(limits, of_keys, true) and are_alike(shadows, shadows_of_keys) and are_alike(settings.shadow)
    and are_weights(settings.key_weights or '')
    and are_weights(settings.bands or '', 0, 7)
    and are_weights(settings.reserve or '', 0, 1000) and are_weights(settings.shed or '', 0, 1000) and is_zone(settings.zone or '')
end
