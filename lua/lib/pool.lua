--- @include "lib/pool_keys"
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/run"
--- @include "lib/share"
--- @include "lib/sites"
--- @include "lib/member"
-- A limit shared by destinations in other slots: what each was granted and gave back, in totals, and who waits for more.
local MAX_SERVED = 16
local STALE_MEMBER_MS = 3000
local CHUNK_BYTES = 262144 -- handed out beyond the need while nobody waits, so that a busy member seldom asks
local p
local served = {}

local function begin_learning(epoch)
  -- What was granted may be forgotten here, so nothing new is granted until every member has reported what it holds.
  p.epoch = math.max(p.epoch + 1, now_ms, epoch + 1)
  p.learning, p.rebuild_ms = now_ms, 0
end

local function new_pool(run_id, ttl_ms)
  local run, promotion = name_run(run_id)
  p = { run_id = run, promotion = promotion, own = math.huge, reserve = 0, granted = 0, peak = 0, epoch = now_ms,
    learning = now_ms + ttl_ms, rebuild_ms = 0, tickets = 0, part_of = '', sites = {}, least = 0, full = 0 }
  p.share = read_share(redis.call('HGET', K_POOL, 'share'), '')
end

local function load_sites(text, leasts)
  local names
  p.named, p.leasts, p.least = text, leasts, 0
  p.sites, names = read_sites(text, leasts)
  if names[1] then
    for i, record in ipairs(redis.call('HMGET', K_MEMBERS, unpack(names))) do
      local m = parse_member(record)
      local named = p.sites[names[i]]
      m.most, m.weight, m.least = named.most, named.weight, named.least
      m.heard = tonumber(string.match(record or '', HEARD_PATTERN) or 0)
      m.refused = string.match(record or '', REFUSED_PATTERN)
      p.sites[names[i]], p.least = m, p.least + m.least
    end
  end
end

-- What the pool may lend now, and ever: its own limit, and no more than it holds of a pool at another site.
local function set_limit()
  p.limit, p.most = p.own, p.own
  if p.part_of ~= '' then
    local s = p.share
    p.limit = math.min(p.own, share_left(s, p.part_of, p.epoch))
    p.most = math.min(p.own, s.of == p.part_of and s.heard > 0 and s.most or math.huge)
  end
end

local function is_full()
  return p.full % 2 == 1
end

local function limit_text(bytes)
  return bytes == math.huge and 'unlimited' or int(math.max(0, bytes))
end

local function load_pool(run_id)
  local raw = redis.call('HMGET', K_POOL, 'run_id', 'limit_bytes', 'reserve_bytes', 'granted_bytes',
    'peak_bytes', 'epoch', 'learning', 'rebuild_ms', 'tickets', 'promotion', 'part_of', 'share', 'sites', 'leasts',
    'resume_bytes', 'full')
  if not raw[1] then
    return nil
  end
  p = { run_id = raw[1], own = limit_of(raw[2]), reserve = raw[3] + 0, granted = raw[4] + 0, peak = raw[5] + 0,
    epoch = raw[6] + 0, learning = raw[7] + 0, rebuild_ms = raw[8] + 0, tickets = raw[9] + 0,
    promotion = raw[10] or '', part_of = raw[11] or '', resume = raw[15], full = tonumber(raw[16] or 0) }
  p.share = read_share(raw[12], p.part_of)
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
  load_sites(raw[13], raw[14])
  set_limit()
  return p
end

local function save_pool()
  redis.call('HSET', K_POOL, 'run_id', p.run_id, 'promotion', p.promotion, 'granted_bytes', int(p.granted),
    'peak_bytes', int(math.max(p.peak, p.granted)), 'epoch', int(p.epoch), 'learning', int(p.learning), 'rebuild_ms',
    int(p.rebuild_ms), 'tickets', int(p.tickets))
end

local function read_member(member)
  if p.sites[member] then
    return p.sites[member]
  end
  local text = redis.call('HGET', K_MEMBERS, member)
  local m = parse_member(text)
  m.overdrawn = tonumber(string.match(text or '', OVERDRAWN_PATTERN) or 0)
  if is_site(member) then -- the pool does not name it any more: what it has goes back
    m.most, m.least, m.heard = 0, 0, tonumber(string.match(text or '', HEARD_PATTERN) or 0)
  end
  return m
end

local function draw(m, more)
  more = math.min(more, MOST - m.granted) -- totals stay exact, whatever a site says that they are
  m.granted, p.granted = m.granted + more, p.granted + more
end
