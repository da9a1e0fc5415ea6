--- @include "lib/orphans"
-- One message by its id, for those who manage a destination: only while nobody has it in hand.

-- Returns its entry; or nil, and who has it, if it is here.
local function find_alone(id)
  local entry = redis.call('XRANGE', K_MESSAGES, id, id)[1]
  if not entry or is_over(id) then
    return nil
  end
  for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do
    local held = redis.call('XPENDING', K_MESSAGES, sub, id, id, 1)[1]
    local who = held and held[2]
    if who and who ~= RETURNED and who ~= IN_TURN and who ~= LATER and who ~= ENDED then
      return nil, who
    end
  end
  return entry
end

-- Frees it for all subscriptions, whatever it waits for there.
local function free_alone(id)
  local seq = string.match(id, '^%d+')
  if d.fair then
    in_turn().forget(id)
  end
  count_holders(id, redis.call('HKEYS', K_SUBSCRIPTIONS))
  redis.call('HDEL', K_REFS, seq)
  cool(seq)
  free_messages({ id }, size_of(id), true)
end
