--- @include "lib/consumer"
--- @include "lib/ledger"
-- Of a call that settles: ids that may be ones, and the consumer that it names.
local match, sub = string.match, string.sub

-- The bytes that an id says; nothing where it is none: Redis' complaint about that would come in the middle of the work.
local function bytes_of_id(text)
  local dash = match(text, '^%d+()%-%d+$')
  return dash and dash < 18 and #text - dash < 17 and sub(text, dash + 1) + 0
end

-- An id, its bytes, and where one has it behind it, in how many ms it is due again.
local function read_id(text)
  local bytes = bytes_of_id(text)
  if bytes then
    return text, bytes
  end
  local id, ms = match(text, '^(%d+%-%d+)%+(%d+)$')
  bytes = id and bytes_of_id(id)
  if bytes then
    return id, bytes, tonumber(ms)
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
