--- @include "lib/destination"
-- Appends `count` of ARGV after `at` that have nothing but a body, as most do, for one reader; they are stored. References, which
-- count nothing under the limit, are all to one segment, so the bytes of a payload stand at one place in each.
local function append_plain(at, count, references)
  local call, format, match, seq, largest = redis.call, string.format, string.match, d.message_seq, d.largest_bytes
  local past = references and count > 0 and string.find(ARGV[at + 1], ' ', 1, true)
  for i = 1, count do
    local body = ARGV[at + i]
    local bytes = past and tonumber(match(body, '^ %d+ (%d+)', past)) or #body
    call('XADD', K_MESSAGES, format('%d-%d', seq + i, references and 0 or bytes), 'm', body)
    if bytes > largest then
      largest = bytes
    end
  end
  d.message_seq, d.largest_bytes = seq + count, largest
  return true
end
