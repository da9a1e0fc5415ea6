--[[
  take - reserve slots in a rate bucket (GCRA), first come first served over all hosts.

  A slot is a moment of Redis' clock at which its tokens may be used; refusals cost nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run        the server's run id as the caller learnt it when it connected
  ARGV[2] session  id         of the caller
  ARGV[3] seq      1 to 2^52  number of this call, counted by the session from 1; repeated, it gets the stored reply
  ARGV[4..] tokens, max_wait_ms  up to 128 of 1 to 2^40; ms  one pair a caller in line; a caller that cannot be served
                              in time is passed over
  Returns {code, wait_us, ...}; for each pair microseconds from now to its slot, or 'late:<wait_us>', 'off:<wait_us>' during a
           hold-off, or 'never:<burst>' where nothing was taken
  Codes    OK, UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/held"
--- @include "lib/ledger"
--- @include "lib/rate"
--- @include "lib/tried"
local MOST_AHEAD_MS = 60000 -- who is willing to wait longer asks again: nobody has slots that others could use until then
local run_id, sid, seq = ARGV[1], ARGV[2], ARGV[3]

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'bucket' then
  return { 'KIND', d.kind }
end
local stored = redis.call('GET', K_RECEIPT)
if stored and string.match(stored, '^%d+') == seq then
  local reply = { 'OK' }
  for slot in string.gmatch(string.sub(stored, #seq + 2), '%S+') do
    local at = tonumber(slot)
    reply[#reply + 1] = at and int(math.max(0, at - now_us)) or slot
  end
  return reply
end

if d.spent then
  hold_off.finish(d)
end
local settings = redis.call('HMGET', K_DESTINATION, 'rate', 'burst', 'tat', 'took_us', 'taken')
local rate, burst, tat = tonumber(settings[1]), tonumber(settings[2]), tonumber(settings[3] or 0)
local set_back = math.max(0, tonumber(settings[4] or 0) - now_us)
tat = tat - set_back -- a clock that was set back must not lock the bucket
local unlimited = not rate
local tolerance = unlimited and 0 or math.min(math.ceil(burst * 1000000 / rate), MOST_OWED_US)
local held_us, late = (d.held_until or 0) * 1000, d.held_until and 'off:' or 'late:'
if held_us > 0 then
  tat = math.max(tat, held_us + tolerance) -- what it saves up meanwhile is not let go all at once
end
local reply, receipt, taken, refused, each = { 'OK' }, { seq }, 0, 0, {}
for i = 4, #ARGV, 2 do
  local tokens, patience = tonumber(ARGV[i]), math.min(tonumber(ARGV[i + 1]), MOST_AHEAD_MS) * 1000
  local after = unlimited and now_us or owe(tat, tokens, rate)
  local wait = math.max(0, (unlimited and held_us or after - tolerance) - now_us)
  if not unlimited and tokens > burst then
    reply[#reply + 1], receipt[#receipt + 1] = 'never:' .. settings[2], 'never:' .. settings[2]
  elseif wait <= patience then
    tat, taken, each[#each + 1] = after, taken + tokens, tokens
    reply[#reply + 1], receipt[#receipt + 1] = int(wait), int(now_us + wait)
  else
    refused = refused + tokens
    reply[#reply + 1] = late .. int(wait)
    receipt[#receipt + 1] = late .. int(wait)
  end
end
if taken > 0 or set_back > 0 then
  redis.call('HSET', K_DESTINATION, 'tat', int(math.max(0, tat)), 'took_us', int(now_us), 'taken',
    int(math.min(tonumber(settings[5] or 0) + taken, MOST)))
end
if taken > 0 then
  if d.shadow then
    charge_shadows({ tokens = each }, {})
  end
  redis.call('SET', K_RECEIPT, table.concat(receipt, ' '), 'PX', 60000)
  write_ledger('take', sid, taken, refused, tat)
  save_destination()
end
return reply
