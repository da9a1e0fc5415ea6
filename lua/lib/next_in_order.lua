--- @include "lib/in_turn"
-- What a link that moves messages of a queue with `fair_by` gets next: what nobody has, in order, after where it was. It goes
-- by numbers how far it got, so it knows no turns.
local MAX_ROUNDS = 4

local function take_in_order(c, most)
  local ids = {}
  for _ = 1, MAX_ROUNDS do
    local entries = redis.call('XRANGE', K_MESSAGES, '(' .. c.after, int(d.sorted), 'COUNT', int(most - #ids))
    if #entries == 0 then
      return ids
    end
    local holders, taken = {}, {}
    for _, held in ipairs(redis.call('XPENDING', K_MESSAGES, c.sub, entries[1][1], entries[#entries][1], #entries)) do
      holders[held[1]] = held[2]
    end
    for _, entry in ipairs(entries) do
      local holder = holders[entry[1]]
      if not holder or holder == IN_TURN or holder == RETURNED then
        d.returned = d.returned - (holder == RETURNED and 1 or 0)
        ids[#ids + 1], taken[#taken + 1] = entry[1], entry
      end
    end
    c.after = entries[#entries][1]
    in_turn().unfile(taken)
    if #ids == most then
      return ids
    end
  end
  d.more = true
  return ids
end
