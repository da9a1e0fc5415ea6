--- @include "lib/site_key"
-- A site may write into the key of letters what it likes: what is no letter is deleted, so that it fills no memory here.
local LETTERS = 3 -- report, read, answer; where there are more, all go, and the site reports anew
local MOST_REPORT = 200
local MOST_LETTER = 400 -- bytes of an answer
local REPORT = '^epoch=(%d+) pool=(%d+) granted=(%d+) returned=(%d+) need=(%d+) at=(%d+)$'

local function letter(field, most)
  if redis.call('HSTRLEN', K_SITE, field) > most then
    redis.call('HDEL', K_SITE, field)
  end
  return redis.call('HGET', K_SITE, field) or ''
end

-- The report, whether there is none, and its numbers; nothing where it is no report.
local function read_report()
  if redis.call('HLEN', K_SITE) > LETTERS then
    redis.call('UNLINK', K_SITE)
  end
  local silent = redis.call('HSTRLEN', K_SITE, 'report') == 0
  local report, sound = letter('report', MOST_REPORT), 0
  local numbers = { string.match(report, REPORT) }
  for i, word in ipairs(numbers) do
    numbers[i] = tonumber(word)
    sound = sound + (#word <= 16 and numbers[i] <= MOST and 1 or 0)
  end
  return report, silent, sound == 6 and numbers
end
