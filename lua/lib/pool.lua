--- @include "lib/pool_keys"
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/run"
-- A limit shared by destinations in other slots: what each was granted and gave back, in totals, and who waits for more.
local MAX_SERVED = 16
local STALE_MEMBER_MS = 3000 -- nobody asked for it any more, so those behind it need not wait
local CHUNK_BYTES = 262144 -- handed out beyond the need while nobody waits, so that a busy member seldom asks
local MEMBER = 'granted=%d returned=%d epoch=%d need=%d reserved=%d seen=%d'
local NO_MEMBER = 'granted=0 returned=0 epoch=0 need=0 reserved=0 seen=0'
local MEMBER_PATTERN = '^granted=(%d+) returned=(%d+) epoch=(%d+) need=(%d+) reserved=(%d) seen=(%d+)'
local WEIGHT = ' weight=%d' -- follows only where it is not 1, so that older scripts can read all other records
local WEIGHT_PATTERN = ' weight=(%d+)$'
local p
local served = {}

local function begin_learning(epoch)
  -- What was granted may be forgotten here, so nothing new is granted until every member has reported what it holds.
  p.epoch = math.max(p.epoch + 1, now_ms, epoch + 1)
  p.learning, p.rebuild_ms = now_ms, 0
end

local function new_pool(run_id, ttl_ms)
  local run, promotion = name_run(run_id)
  p = { run_id = run, promotion = promotion, limit = math.huge, reserve = 0, granted = 0, peak = 0, epoch = now_ms,
    learning = now_ms + ttl_ms, rebuild_ms = 0, tickets = 0 }
end

local function limit_text(bytes)
  return bytes == math.huge and 'unlimited' or int(math.max(0, bytes))
end

local function load_pool(run_id)
  local raw = redis.call('HMGET', K_POOL, 'run_id', 'limit_bytes', 'reserve_bytes', 'granted_bytes',
    'peak_bytes', 'epoch', 'learning', 'rebuild_ms', 'tickets', 'promotion')
  if not raw[1] then
    return nil
  end
  p = { run_id = raw[1], limit = limit_of(raw[2]), reserve = raw[3] + 0, granted = raw[4] + 0, peak = raw[5] + 0,
    epoch = raw[6] + 0, learning = raw[7] + 0, rebuild_ms = raw[8] + 0, tickets = raw[9] + 0,
    promotion = raw[10] or '' }
  local run, promotion, may_be_lost
  if run_id ~= p.run_id then
    run, promotion, may_be_lost = next_run(run_id, p.run_id, K_POOL)
  end
  if run then
    p.run_id, p.promotion = run, promotion
    if may_be_lost then
      begin_learning(0)
    end
  end
  return p
end

local function save_pool()
  redis.call('HSET', K_POOL, 'run_id', p.run_id, 'promotion', p.promotion, 'granted_bytes', int(p.granted),
    'peak_bytes', int(math.max(p.peak, p.granted)), 'epoch', int(p.epoch), 'learning', int(p.learning), 'rebuild_ms',
    int(p.rebuild_ms), 'tickets', int(p.tickets))
end

local function parse_member(text)
  local granted, returned, epoch, need, reserved, seen = string.match(text or NO_MEMBER, MEMBER_PATTERN)
  return { known = text, granted = granted + 0, returned = returned + 0, epoch = epoch + 0, need = need + 0,
    reserved = reserved + 0, seen = seen + 0, weight = tonumber(string.match(text or '', WEIGHT_PATTERN) or 1) }
end

local function read_member(member)
  return parse_member(redis.call('HGET', K_MEMBERS, member))
end

local function save_member(member, m)
  local weight = m.weight ~= 1 and string.format(WEIGHT, m.weight) or ''
  redis.call('HSET', K_MEMBERS, member,
    string.format(MEMBER, m.granted, m.returned, m.epoch, m.need, m.reserved, m.seen) .. weight)
end

local function most_of(m)
  return p.limit - (m.reserved == 1 and 0 or p.reserve)
end

local function pool_room(m)
  return most_of(m) - p.granted
end

-- With all that it has already, it asks for more than there is for it: it must first use less itself.
local function beyond_limit(m)
  return m.need - m.returned > most_of(m)
end

local function draw(m, more)
  m.granted, p.granted = m.granted + more, p.granted + more
end
