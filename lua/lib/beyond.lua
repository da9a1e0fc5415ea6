--- @include "lib/keys"
--- @include "lib/number"
-- What a link brought here that brings each message to the slice of its value: its numbers above the mark. At the mark all
-- is at one of the slices; above it another slice may lack what comes before. However the queue is spread later, a number
-- says that its message is here.
local MAX_BEYOND = 4096 -- more than a link has in hand
local BEYOND_PATTERN = '^(%d+) (%d+)(.*)$'

-- Returns a list of those above the mark, with the set of them as `is`, up to which number all is `done`, and by which `spread`
-- the call goes; of a source that was made anew there are none. Nothing of other links, and a refusal where it comes late, for
-- what it brings may be at another slice by now, or where `more` were too many.
local function read_beyond(link, born, l, spread, done, more)
  if not spread then
    return
  end
  local from, last, numbers = string.match(redis.call('HGET', K_LINKS, 'beyond:' .. link) or '', BEYOND_PATTERN)
  local found, mark = { is = {}, spread = spread, done = done }, born == l.born and math.max(l.mark, done) or done
  if spread < tonumber(last or 0) then
    return nil, { 'STALE', int(d.epoch), int(l.born) }
  end
  for number in string.gmatch(tonumber(from) == born and numbers or '', '%d+') do
    if tonumber(number) > mark then
      found[#found + 1], found.is[tonumber(number)] = number, true
    end
  end
  return found, #found + more > MAX_BEYOND and { 'FULL' }
end

-- Notes what was stored now; returns whether the link is one of those.
local function keep_beyond(link, l, beyond, puts)
  if not beyond then
    return false
  end
  for _, i in ipairs(puts) do
    beyond[#beyond + 1] = int(tonumber(ARGV[i]))
  end
  l.mark = math.max(l.mark, beyond.done)
  local record = string.format('%d %d %s', l.born, beyond.spread, table.concat(beyond, ' '))
  redis.call('HSET', K_LINKS, 'beyond:' .. link, record)
  return true
end
