--- @include "lib/destination"
-- Hold-offs of gates and buckets: every script that may admit something there includes this.

-- How much of a span, '<from ms> <until ms>', is over; nil where it is not going on, or begins later than now by a clock that
-- was set back.
local function part_of(span)
  local from, ends = string.match(span or '', '^(%d+) (%d+)$')
  local part = from and (now_ms - from + 1) / (ends - from + 1)
  return part and part > 0 and part < 1 and part or nil
end

-- During a hold-off nothing is admitted, and after it as much as there has been time for.
hold_off.heed = function(read)
  local part = part_of(read.ramp)
  read.held_until = part_of(read.held_off) and tonumber(string.match(read.held_off, '%d+$')) or nil
  read.spent = not read.held_until and (read.held_off or not part)
  read.stopped = read.stopped or read.held_until
  read.begins = part
  if part then
    local most = math.floor(read.limit_bytes * part / (read.of_slices or 1)) -- all slices together are within the part
    read.slice_bytes = math.min(read.slice_bytes, math.max(1, most))
    most = math.floor(read.limit_messages * part / (read.of_slices or 1))
    read.slice_messages = math.min(read.slice_messages, math.max(1, most))
  end
end

-- What a hold-off leaves, once it is over: the slow begin, or after that nothing. A bucket saves up nothing meanwhile.
hold_off.finish = function(read)
  local ends = tonumber(string.match(read.held_off or '', '%d+$') or 0)
  if read.kind == 'bucket' and ends > 0 and ends <= now_ms then
    local set = redis.call('HMGET', K_DESTINATION, 'rate', 'burst', 'tat')
    local whole_us = set[1] and ends * 1000 + math.floor(set[2] * 1000000 / set[1]) or 0
    redis.call('HSET', K_DESTINATION, 'tat', int(math.max(tonumber(set[3] or 0), whole_us)))
  end
  redis.call('HDEL', K_DESTINATION, 'held_off')
  if not part_of(read.ramp) then
    redis.call('HDEL', K_DESTINATION, 'ramp', 'off_reason')
  end
  redis.call('HSET', K_DESTINATION, 'rules', name_rules())
  redis.call('PUBLISH', K_DESTINATION .. ':wake', 'settings')
  read.spent = nil
end
