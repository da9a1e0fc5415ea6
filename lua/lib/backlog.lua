--- @include "lib/consumer"
-- Messages that wait for a subscription: given back, or never delivered. Of one of several subscriptions at most that many.
local function waiting_for(sub)
  local summary, returned, delivered = redis.call('XPENDING', K_MESSAGES, sub), 0, 0
  for _, holder in ipairs(summary[4] or {}) do
    delivered = delivered + tonumber(holder[2])
    if holder[1] == RETURNED then
      returned = tonumber(holder[2])
    end
  end
  if d.fair and sub == 'queue' then
    return redis.call('ZCARD', K_FAIR) + math.min(d.pending_messages, d.message_seq - d.sorted) + returned
  elseif d.kind == 'queue' and d.subscriptions < 2 then
    return d.pending_messages - delivered + returned
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', K_MESSAGES)) do
    local about = {}
    for i = 1, #group, 2 do
      about[group[i]] = group[i + 1]
    end
    if about.name == sub then
      local last = tonumber(string.match(about['last-delivered-id'], '^(%d+)'))
      return math.min(d.pending_messages, d.message_seq - last) + returned
    end
  end
  return returned
end
