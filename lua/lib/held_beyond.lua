--- @include "lib/link"
--- @include "lib/deliver"
-- Returns the ids of messages above the mark that the target of a link has too, of those that the link has in hand; `numbers` grow.
local function held_beyond(sub, cid, mark, numbers)
  local ids, before = {}, mark
  for number in string.gmatch(numbers, '%d+') do
    if tonumber(number) > before and #ids < MAX_DELIVERED - 1 then
      before = tonumber(number)
      local entry = redis.call('XPENDING', K_MESSAGES, sub, number .. '-0', number .. ANY_SIZE, 1, cid)[1]
      ids[#ids + 1] = entry and entry[1]
    end
  end
  return ids
end
