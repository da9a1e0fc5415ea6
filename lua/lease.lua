--[[
  lease - hold named leases: renew those that the caller has, claim free ones up to its fair part, or let go.

  KEYS  the namespace's, as lib/owned
  ARGV[1] owner   word               id of who holds them
  ARGV[2] mode    'hold', 'known', 'alone', 'watch', 'release', 'leave' or 'forget'  'hold' renews and claims, 'known' the
                                     same of leases that there are, 'alone' as 'hold' without a share in the
                                     whole: these are nobody's part of it, 'watch' renews only,
                                     'release' gives these up, 'leave' that and the owner's place among those who share,
                                     'forget' removes these, if nobody else has them
  ARGV[3] ttl_ms  ttl                length of a lease
  ARGV[4] held    total              how many leases the caller has, these included
  ARGV[5] total   total              how many leases there are to share
  ARGV[6] above   size               claims get a fencing number above this one
  ARGV[7..] names   up to 256 of word
  Returns {code, fair, again_ms, {name, fence, ...}}; fair: how many the caller may have; again_ms: when another of these may
           be free, 0 when that is not known; last, those of these that the caller has
  Codes    OK
]]
--- @include "lib/owned"
local owner, mode, ttl_ms, held, total = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local MAX_OWNERS_LAPSED = 16
local doubted = now_ms + math.floor(ttl_ms * 6 / 10)

for _, gone in ipairs(redis.call('ZRANGEBYSCORE', K_OWNERS, '-inf', int(now_ms), 'LIMIT', 0, MAX_OWNERS_LAPSED)) do
  redis.call('ZREM', K_OWNERS, gone)
end
for _, late in ipairs(redis.call('ZRANGEBYSCORE', K_OWNERS, '(' .. int(now_ms + ttl_ms), '+inf', 'LIMIT', 0, MAX_OWNERS_LAPSED)) do
  redis.call('ZADD', K_OWNERS, int(doubted), late) -- the clock was set back
end
if mode == 'hold' or mode == 'known' or mode == 'watch' then
  redis.call('ZADD', K_OWNERS, int(doubted), owner)
elseif mode == 'leave' then
  redis.call('ZREM', K_OWNERS, owner)
end
local sharing = math.max(1, redis.call('ZCOUNT', K_OWNERS, '(' .. int(now_ms), '+inf'))
local fair = mode == 'alone' and total or math.ceil(total / sharing)
local claims = mode == 'hold' or mode == 'known' or mode == 'alone'
local mine, again = {}, math.huge
for i = 7, #ARGV do
  local name, o = ARGV[i], read_owned(ARGV[i])
  if claims or mode == 'watch' then
    local has = o.owner == owner
    if not has and claims and (mode ~= 'known' or o.fence > 0) then -- else it was forgotten since its name was read
      local free, look = may_be_taken(name, o, ttl_ms)
      has = free and held < fair
      again = math.min(again, not free and look or math.huge)
      if has then
        held = held + 1
        o.owner, o.fence = owner, math.max(o.fence + 1, now_ms, tonumber(ARGV[6]) + 1)
      end
    end
    if has then
      o.ends, o.strike = doubted, 0
      save_owned(name, o)
      mine[#mine + 1], mine[#mine + 2] = name, int(o.fence)
    end
  elseif mode == 'forget' and (o.owner == owner or o.owner == NOBODY) then
    redis.call('HDEL', K_OWNED, name)
  elseif o.owner == owner then
    o.owner, o.ends, o.strike = NOBODY, 0, 0
    save_owned(name, o)
  end
end
return { 'OK', int(fair), int(again < math.huge and math.max(1, again - now_ms) or 0), mine }
