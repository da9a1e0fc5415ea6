--[[
  pool_set - create a pool, change its limits, end its learning, or delete it.

  KEYS  the pool's, as lib/pool_keys
  ARGV[1] run_id        run    the server's run id as the caller learnt it when it connected
  ARGV[2] mode          'change', 'recover', 'ready' or 'remove'  'change' creates or changes, 'recover' creates what
                               the caller knew before state was lost, 'ready' ends the learning of `pool_epoch`: all
                               destinations were asked; 'remove' deletes it
  ARGV[3] pool_epoch    total  for 'ready', else 0
  ARGV[4] ttl_ms        ttl    for 'recover': how long holders may take to claim what they had, else 0
  ARGV[5..] field, value  up to 20 of text to 60; field  what the pool is set to; an empty value removes a field
  Returns {code, pool_epoch, learning, {member, epoch, granted, returned, ...}}; last, members that were served: deliver it
  Codes    OK, CREATED (it learns: all destinations must be asked what they hold), OLD (a newer policy version is in force),
           UNKNOWN, EPOCH (it began to learn anew meanwhile), EARLY (holders may still claim)
  Fields   limit_bytes     'unlimited' or size
           reserve_bytes   size
           resume_bytes    size or share
           part_of         part
           sites           sites
           leasts          sites
           percent         text to 60
           total_bytes     size
           policy_version  total
           policy          text to 4000
]]
--- @include "lib/serve"
--- @include "lib/full"
local run_id, mode, pool_epoch, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ALWAYS = { limit_bytes = 'unlimited', reserve_bytes = '0', policy_version = '0' } -- what every pool has
local settings = {}
for i = 5, #ARGV, 2 do
  settings[ARGV[i]] = ARGV[i + 1] == '' and ALWAYS[ARGV[i]] or ARGV[i + 1]
end

local code = 'OK'
local known = load_pool(run_id)
if known and mode == 'remove' then
  redis.call('UNLINK', unpack(KEYS))
  if p.share and p.share.granted > p.share.returned then
    redis.call('HSET', K_POOL, 'share', share_text(p.share)) -- of a pool that is none: a node gives that back
  end
  return { 'OK', int(p.epoch), '0', {} }
elseif known and mode == 'recover' then
  return { 'OK', int(p.epoch), int(p.learning), {} }
elseif known and mode == 'ready' and pool_epoch ~= p.epoch then
  return { 'EPOCH', int(p.epoch), int(p.learning), {} }
elseif known and mode == 'ready' and p.learning > p.epoch and now_ms < p.learning then -- it was lost
  return { 'EARLY', int(p.epoch), int(p.learning), {} }
elseif not known and (mode == 'ready' or mode == 'remove') then
  return { 'UNKNOWN', '0', '0', {} }
elseif not known then
  code = 'CREATED'
  new_pool(run_id, mode == 'recover' and ttl_ms or 0)
else
  local version = tonumber(redis.call('HGET', K_POOL, 'policy_version') or 0)
  if tonumber(settings.policy_version or version) < version then
    return { 'OLD', int(p.epoch), int(p.learning), {} }
  end
  redis.call('HDEL', K_POOL, '-') -- allowed under OOM, and so is all that follows: a limit can always be changed
end
if mode == 'ready' then
  p.learning = 0
end
if code == 'CREATED' then
  redis.call('HSET', K_POOL, 'limit_bytes', 'unlimited', 'reserve_bytes', '0')
end
for field, value in pairs(settings) do
  if value == '' then
    redis.call('HDEL', K_POOL, field)
  else
    redis.call('HSET', K_POOL, field, value)
  end
end
local own, resume = p.own, p.resume
if settings.resume_bytes then
  p.resume = settings.resume_bytes ~= '' and settings.resume_bytes or nil
end
p.own, p.reserve = limit_of(settings.limit_bytes or p.own), tonumber(settings.reserve_bytes or p.reserve)
p.part_of = settings.part_of or p.part_of
p.share = p.share or read_share(nil, p.part_of)
set_limit()
if is_full() and (p.own ~= own or p.resume ~= resume) then
  turn() -- whoever waits goes by the settings that there are now
end
local before = p.sites
local is_about_sites = settings.sites or settings.leasts
if is_about_sites then
  load_sites(settings.sites or p.named, settings.leasts or p.leasts)
end
for member, m in pairs(p.sites) do
  local is_new = known and not before[member] and p.learning == 0 and not m.known
  if is_new then
    m.heard = p.epoch -- it never had anything here, or that would be known
  end
  if is_new or (m.known and is_about_sites) then
    save_member(member, m) -- with the weight and the least that it has now
  end
end
serve_line()
save_pool()
return { code, int(p.epoch), int(p.learning), served }
