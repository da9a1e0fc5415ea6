--- @include "lib/pool_keys"
-- A record of a pool: what a member was granted and gave back, in totals, and what it needs.
local MEMBER = 'granted=%d returned=%d epoch=%d need=%d reserved=%d seen=%d'
local NO_MEMBER = 'granted=0 returned=0 epoch=0 need=0 reserved=0 seen=0'
local MEMBER_PATTERN = '^granted=(%d+) returned=(%d+) epoch=(%d+) need=(%d+) reserved=(%d) seen=(%d+)'
local HEARD = ' heard=%d' -- follows only of sites: the epoch of this pool in which one was heard of
local HEARD_PATTERN = ' heard=(%d+)'
local LEAST = ' least=%d' -- the same, where it is not 0: for those who read records, and have not the settings at hand
local REFUSED = ' refused=%s' -- the same, where a report of it was: the code and when, as code@ms
local REFUSED_PATTERN = ' refused=(%S+)'
local OVERDRAWN = ' overdrawn=%d' -- follows of whom was lent above the limit: the `returned` with which that is paid back
local OVERDRAWN_PATTERN = ' overdrawn=(%d+)'
local PENDING = ' pending=%d full=%d' -- follows only where the pool resumes at a level: of slices, as they reported last
local PENDING_PATTERN = ' pending=(%d+) full=(%d+)'
local WEIGHT = ' weight=%d' -- follows only where it is not 1, so that older scripts can read all other records
local WEIGHT_PATTERN = ' weight=(%d+)$'

local function parse_member(text)
  local granted, returned, epoch, need, reserved, seen = string.match(text or NO_MEMBER, MEMBER_PATTERN)
  return { known = text, granted = granted + 0, returned = returned + 0, epoch = epoch + 0, need = need + 0,
    reserved = reserved + 0, seen = seen + 0, weight = tonumber(string.match(text or '', WEIGHT_PATTERN) or 1) }
end

local function save_member(member, m)
  local of_site = (m.heard and string.format(HEARD, m.heard) or '') .. ((m.least or 0) > 0 and string.format(LEAST, m.least) or '')
    .. (m.refused and string.format(REFUSED, m.refused) or '')
  local above = (m.overdrawn or 0) > 0 and string.format(OVERDRAWN, m.overdrawn) or ''
  local reported = m.pending and string.format(PENDING, m.pending, m.full) or ''
  local more = of_site .. above .. reported .. (m.weight ~= 1 and string.format(WEIGHT, m.weight) or '')
  redis.call('HSET', K_MEMBERS, member,
    string.format(MEMBER, m.granted, m.returned, m.epoch, m.need, m.reserved, m.seen) .. more)
end
