--- @include "lib/destination"
-- Appends `count` of ARGV after `at` that have nothing but a body, as most do, for one reader; they are stored.
local function append_plain(at, count)
  local call, format, seq, largest = redis.call, string.format, d.message_seq, d.largest_bytes
  for i = 1, count do
    local body = ARGV[at + i]
    call('XADD', K_MESSAGES, format('%d-%d', seq + i, #body), 'm', body)
    if #body > largest then
      largest = #body
    end
  end
  d.message_seq, d.largest_bytes = seq + count, largest
  return true
end
