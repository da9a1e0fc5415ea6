--- @include "lib/hold_now"
--- @include "lib/refused"
-- Operations of one call that are alike: what such a hold is, and how it is written, is known after the first.
local together = {} -- one table for all of one call: a function of Lua has room for 200 local names

-- `text` is what its caller asked for.
together.remember = function(id, h, text)
  limiter.last[h.key] = { h = h, text = text, written = texts[id], lease = leases[id],
    noted = ':' .. of_ledger(h.key) .. ':' .. for_ledger(h.amounts) }
end

-- Admits one that is like one before it: what that is, and how it is written, is known. Returns whether it is held now.
together.admit_alike = function(like, id, text, ttl_ms)
  if like.text ~= text or like.h.ttl ~= ttl_ms or texts[id] ~= false or d.blocked > 0 or room_for_holds() < 1
    or what_binds(like.h.key, like.h.amounts) ~= 0 then
    return false
  end
  count_in(id, like.h)
  store_hold(id, like.written)
  leases[id] = like.lease
  notes[#notes + 1] = 'held:' .. id .. like.noted
  return true
end

-- The answer to one that asks for what one just before it was refused: nothing changed meanwhile.
together.refuse_alike = function(id, key, text, wait_ms)
  local late = limiter.late
  if late and late.key == key and late.text == text and wait_ms == 0 and texts[id] == false and d.blocked == 0 then
    count_refusal(late.limit, late.whose)
    return late.answer
  end
  limiter.late = nil
end

-- Releases the holds that are named from `at` on, one after the other; returns how many these are.
together.release = function(at)
  local count, alike = 0, {}
  for at = at, #ARGV, 6 do
    local id = ARGV[at + 1]
    local text = ARGV[at] == 'release' and texts[id]
    if not text or string.sub(text, 1, 1) ~= 'H' then
      break
    end
    alike[text] = alike[text] or { h = read_hold(id), times = 0 }
    alike[text].times = alike[text].times + 1
    forget_hold(id)
    notes[#notes + 1] = 'freed:' .. id
    count = count + 1
  end
  for _, group in pairs(alike) do
    give_back(group.h, group.times)
    stir_key(group.h.key)
  end
  return count
end
