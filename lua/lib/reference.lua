--- @include "lib/destination"
-- A message whose payload is in a spool store: a reference to a part of a segment, '<mark><segment> <offset> <bytes> <crc>'.
local REFERENCE = 193 -- the first byte of a reference; no message begins so, neither msgpack nor AMQP has it

local function is_reference(body)
  return string.byte(body) == REFERENCE
end

-- An id tells only the size of what is stored; no reference is larger.
local function may_be_reference(id)
  return tonumber(string.match(id, '%-(%d+)')) <= 512
end

-- Bytes that it counts for under rates and windows: those of its payload.
local function payload_size(body)
  return is_reference(body) and tonumber(string.match(body, '^.%S+ %d+ (%d+)')) or #body
end
