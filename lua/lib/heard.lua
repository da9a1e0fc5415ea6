--- @include "lib/lent"
--- @include "lib/wake"
-- What a slice heard of its pool being full, where that resumes at a level. The numbers only grow, but for a pool that may have lost
-- state; while one is odd the slice serves nobody.
local function full_field(pool)
  return (pool == d.slices_pool and d.resume_bytes and 'bytes_full')
    or (pool == d.messages_pool and d.resume_messages and 'messages_full')
end

local function heed_full(pool, full, anew)
  local field = full_field(pool)
  local heard = field and (anew and full or math.max(full, d[field]))
  if field and heard ~= d[field] then
    d[field] = heard
    redis.call('HSET', K_DESTINATION, field, int(heard))
  end
end

local function is_shut_by(pool)
  local field = full_field(pool)
  return field and d[field] % 2 == 1
end

-- Returns an answer with what is pending, the number that was heard, and whether somebody waits; `size` is what the first lacks of the pool.
local function report_to(pool, size, answer)
  local field = full_field(pool)
  if not field then
    return answer
  end
  local all, leased = used_of(pool)
  local first = d.blocked > 0 and redis.call('ZRANGE', K_WAITERS, 0, 0)[1]
  local s = first and read_session(first)
  local waits = s and (size == 0 and lacks_of(pool, s) > 0 and 'here' or 'yes') or 'no' -- 'here': it would not fit beside what is here
  answer[12], answer[13], answer[14] = int(all - leased), int(d[field]), waits
  return answer
end

-- For messages that a slice was lent which spools, references have room: whoever waits for that hears it.
local function tell_what_was_lent(pool, more)
  if more > 0 and pool == d.messages_pool and d.store then
    wake_all('references')
  end
end
