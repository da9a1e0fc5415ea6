--- @include "lib/lapsing"
--- @include "lib/shedding"
--- @include "lib/refuse_late"
--- @include "lib/together"
-- One operation on one hold.
local MAX_WAITING = 100000

-- Whether it keeps nobody waiting longer who waits already.
local function may_pass(key, amounts)
  if first_waiter(unit_of(key, amounts)) then
    return false
  elseif d.tickets ~= looked_at or limiter.stirred then
    serve_line()
    if what_binds(key, amounts) ~= 0 then return false end -- others were let in
  end
  local last = { key = key, amounts = amounts, ticket = math.huge, since = now_ms }
  return not (is_cut or turn_in_key(key, amounts, last) or whose_turn(key, amounts))
end

-- Returns the answer; nil for one that stands in line: it is known once the line was served.
local function try_to_admit(id, key, text, ttl_ms, wait_ms)
  local like = not (d.reserve or d.shed) and limiter.last[key]
  if like and together.admit_alike(like, id, text, ttl_ms) then
    return 'held'
  end
  local h = read_hold(id)
  if h and h.state == 'H' then return 'held' end
  if limiter.pins and (pinned.is_elsewhere(key) or (not h and pinned.lacks_part(text))) then
    if h then end_wait(id, h) end
    return pinned.is_elsewhere(key) and 'moved' or 'parts'
  elseif h then
    stay(id, h)
    local _, limit, whose, most = what_binds(h.key, h.amounts)
    if most then -- the limits were lowered
      end_wait(id, h)
      return table.concat({ 'never', int(most), limit, whose }, ' ')
    end
    return nil
  end
  local amounts, unknown = name_amounts(text)
  if not amounts or amounts == '-' then
    return 'limit ' .. (unknown or '-')
  elseif limiter.refuse and key ~= NO_KEY and not select(2, weight_of(key)) then
    return 'key'
  elseif not has_room_for(key) then
    return 'keys'
  elseif room_for_holds() < 1 then
    return 'holds'
  end
  if d.bands or string.find(text, '~', 1, true) then
    amounts = with_band(amounts, asked_band(key, text))
    if d.blocked > 0 and not limiter.banded and part_of_line(amounts) > 0 then
      limiter.banded, looked_at = '-', -1 -- what passes those who wait is counted from now on
    end
  end
  local answer = d.shed and shed(key, amounts)
  if answer then return answer end
  local wait, limit, whose, most = what_binds(key, amounts)
  h = { state = 'H', ttl = ttl_ms, strike = 0, since = now_ms, key = key, settled = 0, amounts = amounts, ticket = 0 }
  if most then
    count_refusal(limit, whose)
    return table.concat({ 'never', int(most), limit, whose }, ' ')
  elseif wait == 0 and (d.blocked == 0 or may_pass(key, amounts)) then
    pass_bands(amounts)
    hold_now(id, h, limiter.now_ms)
    together.remember(id, h, text)
    return 'held'
  elseif wait_ms == 0 or d.blocked >= MAX_WAITING then
    limit, whose = limit or 'line', whose or 'all'
    answer = table.concat({ 'late', wait and wait > 0 and int(wait) or '-', limit, whose }, ' ')
    limiter.late = { key = key, text = text, limit = limit, whose = whose, answer = answer }
    count_refusal(limit, whose)
    return answer
  end
  answer = (d.fail_if_late or string.find(text, '!', 1, true)) and refuse_late(key, amounts, wait_ms)
  if answer then return answer end
  limiter.pace = limiter.pace or '-'
  join_line(id, h, wait_ms)
  return stay(id, h)
end

local function do_other(op, id, key, text, ttl_ms, epoch)
  local h = read_hold(id)
  if op == 'claim' then
    local amounts = name_amounts(text)
    if not h and amounts and epoch < d.epoch and now_ms < d.learning_until then
      h = { state = 'H', ttl = ttl_ms, strike = 0, since = now_ms, key = key, settled = 1, amounts = amounts, ticket = 0 }
      take_amounts(key, amounts, 1, true)
      note('claimed', id, of_ledger(key), for_ledger(amounts))
    end
  end
  if not h then
    return 'gone'
  elseif h.state == 'W' and op ~= 'release' then
    stay(id, h)
    return op == 'settle' and 'gone' or 'ok'
  elseif op == 'renew' or op == 'claim' then
    renew_hold(id, h, ttl_ms, limiter.now_ms)
    save_hold(id, h)
    return op == 'renew' and pinned.has_part(h.amounts, true) and 'parts' or 'ok'
  elseif op == 'settle' then
    local answer = settle_hold(id, h, text)
    stir_key(h.key)
    return answer
  end
  end_wait(id, h) -- what is held was released together with those beside it
  return 'ok'
end
