--- @include "lib/consumer"
-- Subscriptions of a topic that want only some of its messages. Those who publish judge by the selectors that `selectors` lists,
-- and say which messages are not for which subscriptions. What nobody wants is not kept.
local MOST_SELECTING = 16 -- subscriptions that are listed; what the others do not want they settle as it comes

local function selects_field(sub)
  return 'selects|' .. sub
end

-- Whether a subscription is to select otherwise than it does; '=' leaves that as it is.
local function selects_otherwise(sub, word)
  local known = word ~= '=' and redis.call('HGET', K_DESTINATION, selects_field(sub))
  return known and string.match(known, '%x+$') ~= redis.sha1hex(word)
end

-- Lists what a subscription wants for those who publish, or takes it out of the list.
local function list_selector(sub, id, word)
  local before, listed = redis.call('HGET', K_DESTINATION, 'selectors') or '', {}
  for name, wants in string.gmatch(before, '([^= ]+)(=%S+)') do
    listed[#listed + 1] = name ~= sub and name .. wants or nil
  end
  if word and #listed < MOST_SELECTING and string.sub(word, 1, 1) ~= '#' then
    listed[#listed + 1] = sub .. '=' .. id .. '=' .. word
  end
  local after = table.concat(listed, ' ')
  if after ~= before then
    if after == '' then
      redis.call('HDEL', K_DESTINATION, 'selectors')
    else
      redis.call('HSET', K_DESTINATION, 'selectors', after)
    end
    wake_all('settings')
  end
end

-- Has a subscription that wanted all select from now on.
local function select_by(sub, word)
  if word ~= '=' and word ~= '' and not redis.call('HGET', K_DESTINATION, selects_field(sub)) then
    redis.call('HSET', K_DESTINATION, selects_field(sub), int(now_us) .. ' ' .. redis.sha1hex(word))
    list_selector(sub, int(now_us), word)
  end
end

local function forget_selector(sub)
  if redis.call('HDEL', K_DESTINATION, selects_field(sub)) == 1 then
    list_selector(sub)
  end
end

-- Of each message the subscriptions that it is not for, as far as they are there and select as they did when it was judged.
local function unwanted_of(references, text)
  if references or text == '' or d.kind ~= 'topic' then
    return nil
  end
  local subs, seen, unwanted = {}, {}, {}
  for sub, id in string.gmatch(string.match(text, '^%S*'), '([^,=]+)=(%d+)') do
    local known = not seen[sub] and redis.call('HGET', K_DESTINATION, selects_field(sub))
    seen[sub] = true
    subs[#subs + 1] = known and string.match(known, '^%d+') == id and sub
    if #subs == MOST_SELECTING then
      break
    end
  end
  for mask in string.gmatch(text, ' (%d+)') do
    local without = {}
    for i, sub in ipairs(subs) do
      if sub and math.floor(mask / 2 ^ (i - 1)) % 2 == 1 then
        without[#without + 1] = sub
      end
    end
    unwanted[#unwanted + 1] = without
  end
  return unwanted
end

-- Of entries that a subscription reads for the first time those that are for it; the others never counted for it.
local function wanted(sub, entries)
  local kept = {}
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    if fields[#fields - 1] == 's' and string.find(' ' .. fields[#fields] .. ' ', ' ' .. sub .. ' ', 1, true) then
      redis.call('XACK', K_MESSAGES, sub, entry[1])
    else
      kept[#kept + 1] = entry
    end
  end
  return kept
end
