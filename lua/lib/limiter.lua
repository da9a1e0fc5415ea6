--- @include "lib/by_key"
--- @include "lib/learning"
--- @include "lib/shadow_limits"
--- @include "lib/pinned"
--- @include "lib/adapting"
-- One limiter: its settings and its clock, read once. Times in its state are of a clock that is never set back: what Redis'
-- clock lost is added from then on.
local function load_limiter(run_id)
  if K_LIMITED then
    d = load_by_key(run_id)
  else
    load_destination(run_id, 0)
  end
  if not d or d.kind ~= 'limiter' then
    return d
  elseif d.new_epoch then
    learn_of_holds()
  end
  local raw = redis.call('HMGET', K_DESTINATION, 'limits', 'key_limits', 'key_weights', 'zone', 'unknown_keys', 'max_keys',
    'levels', 'skew_us', 'called_us', 'sweep', 'due', 'epochs', 'before', 'changed_us', 'generation', 'ledger_keys', 'front',
    'admitted', 'refused', 'unsaid', 'lines', 'shadow_limits', 'shadow_key_limits', 'banded', 'pace', 'peak',
    'shadow_keys', 'pins')
  if K_LIMITED then
    take_settings(raw)
  end
  limiter = { weights = raw[3] or '', refuse = raw[5] == 'refuse', max_keys = tonumber(raw[6] or 1000000),
    skew = tonumber(raw[8] or 0), sweep = raw[10] or '0', due = tonumber(raw[11] or 0), before = raw[13] or '',
    changed_us = tonumber(raw[14] or 0), generation = tonumber(raw[15] or 0), names_keys = raw[16] ~= 'off',
    front = raw[17] or '', admitted = tonumber(raw[18] or 0), refused = tonumber(raw[19] or 0),
    unsaid = raw[20] or '', text = raw[1], lines = raw[21],
    key_text = raw[2], shadow_key_text = raw[23], banded = raw[24], pace = raw[25], peak = tonumber(raw[26] or 0),
    shadow_keys = tonumber(raw[27] or 0), last = {} }
  limiter.limits, limiter.forms, limiter.adapts = parse_limits(raw[1])
  limiter.key_limits, limiter.key_forms = parse_limits(raw[2])
  limiter.shadows = (raw[22] or raw[23]) and read_shadows(raw[22], raw[23]) or nil
  windows.zone = raw[4]
  limiter.skew = limiter.skew + math.max(0, tonumber(raw[9] or 0) - now_us - limiter.skew)
  now_us = now_us + limiter.skew
  limiter.now_ms = math.floor(now_us / 1000)
  limiter.lost_us = raw[12] and d.epoch_ms * 1000 + limiter.skew or 0
  limiter.levels = parse_levels(raw[7])
  limiter.pins = not K_LIMITED and pinned.read(raw[28]) or nil
  if limiter.pins and limiter.pins.own > 0 then pinned.leave_to_first() end
  if limiter.adapts then
    adapting.load()
  end
  return d
end
