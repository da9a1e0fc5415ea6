--- @include "lib/refused"
--- @include "lib/estimate"
-- The answer to one that would not be let in by then; nil for one that may be.
local function refuse_late(key, amounts, wait_ms)
  if d.blocked > 0 and d.tickets ~= looked_at then -- an operation before it joined one
    serve_line()
  end
  limiter.queues = nil
  local us, limit, whose = estimate(key, amounts)
  if us > wait_ms * 1000 then
    count_refusal(limit, whose)
    return table.concat({ 'hopeless', int(us), limit, whose }, ' ')
  end
end
