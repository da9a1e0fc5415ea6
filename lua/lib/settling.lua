--- @include "lib/consumer"
--- @include "lib/ledger"
-- Of a call that settles: ids that may be ones, and the consumer that it names.
local function is_id(text) -- Redis' complaint about one that is not would come in the middle of the work
  local seq, size = string.match(text, '^(%d+)%-(%d+)$')
  return seq and #seq < 17 and #size < 17
end

-- An id, and where one has it behind it, in how many ms it is due again.
local function read_id(text)
  if is_id(text) then
    return text
  end
  local id, ms = string.match(text, '^(%d+%-%d+)%+(%d+)$')
  if id and is_id(id) then
    return id, tonumber(ms)
  end
end

-- A consumer after the housekeeping of the call that names it, which may have ended it: nil then, and that is written down.
local function still_there(reaped, cid, c)
  c = reaped and read_consumer(cid) or not reaped and c or nil
  if not c then
    write_ledger('reap', '-', 0, 0, 0)
    save_destination()
  end
  return c
end
