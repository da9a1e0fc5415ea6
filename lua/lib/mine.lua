--- @include "lib/settle"
--- @enclose
-- Of these ids, those that a consumer holds, each once. Mostly they follow one another, and one look finds them all.
local function mine(sub, cid, ids)
  local held_here, found = {}, {}
  local look = #ids > 1 and redis.call('XPENDING', K_MESSAGES, sub, ids[1], ids[#ids], #ids, cid) or {}
  for _, entry in ipairs(look) do
    found[entry[1]] = true
  end
  for _, id in ipairs(ids) do
    local held = found[id] or #redis.call('XPENDING', K_MESSAGES, sub, id, id, 1, cid) == 1
    if held and not held_here[id] then
      held_here[#held_here + 1], held_here[id] = id, true
    end
  end
  return held_here
end

-- Of these ids, those that are a consumer's to settle. XACK does not ask who holds them: what was given back waits for its next
-- delivery, and others hold what is theirs.
local function to_settle(sub, cid, ids)
  if d.returned > 0 or d.consumers > 1 or d.fair then
    return mine(sub, cid, ids)
  elseif not d.next_due and not d.promoted then
    return ids
  end
  put_in_order(ids)
  return #redis.call('XPENDING', K_MESSAGES, sub, ids[1], ids[#ids], 1, LATER) == 0 and ids or mine(sub, cid, ids)
end
