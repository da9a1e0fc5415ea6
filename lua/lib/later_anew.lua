--- @include "lib/aside"
-- On request what waits is put right: no member of `later` without its message, and nothing aside that would never be due.
local MOST_AT_ONCE = 1000 -- arguments of one command are bounded
local function put_later_right(most)
  note_next_due()
  local lost, found, dues = {}, {}, {}
  for _, member in ipairs(redis.call('ZRANGE', K_LATER, 0, int(most))) do
    local id = string.match(member, '[^|]+$')
    if #redis.call('XRANGE', K_MESSAGES, id, id) == 0 then
      lost[#lost + 1] = member
    end
  end
  forget_later(lost)
  for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do
    for _, id in ipairs(pending_ids(sub, LATER, most)) do
      local member = sub .. '|' .. id
      if not redis.call('ZSCORE', K_LATER, id) and not redis.call('ZSCORE', K_LATER, member) then
        found[#found + 1], dues[#dues + 1] = member, now_ms
      end
      if #found == MOST_AT_ONCE then
        wait_until(found, dues)
        found, dues = {}, {}
      end
    end
  end
  wait_until(found, dues)
end
