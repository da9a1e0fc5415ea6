--[[
  levels - read what is taken of a limiter's limits, of all together and of one key, who holds it and who waits; changes nothing.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id  run          the server's run id as the caller learnt it when it connected
  ARGV[2] key     '*' or name  the key that is looked at beside all together
  ARGV[3] who     '-' or id    the session whose holds are looked for among 10,000; '-' for none
  ARGV[4] most    0 to 1000    how many records of keys, holds and waiters are looked at; 0 lists none of them
  Returns {code, epoch, all, of key, keys, waiting, {key, record, ...}, {waiter, ...}, {hold, record, ...}, {hold, record or
           waiter, ...}, learning_ms, off_reason, now_ms, clock_ms, head, admitted, refused, all holds, by band}, and where there are
           shadow limits {..., all, of key, would_wait, shadowed}; of a limit '<name> <form> <most> <left> <us until whole> <taken> <withheld>', with blanks and ';' between; records as they are.
           Of one that adapts also '<floor> <ceiling> <aimd|gradient> <why it changed last> <from> <ms ago> <ok> <overloads>
           <mean us> <all ok> <all overloads> <all ignored>': the three in the middle are of the second that it changed for.
           Of a waiter 'W <key> <waiters of it> <hold> <since ms> <place or -> <us till its turn or -> <us or -> <limit> <all|key> <amounts>':
           of the head first; `head` is the last four of these. The place, and when its turn comes by what stands before it, are of
           the first of each line, of the key and of the session. The keys are some, those of the holds and waiters listed among them; the holds those
           whose leases end last, and those of the session
  Codes    OK, UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/listing"
local run_id, key, who, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- What a hold-off keeps from being taken, until it is over and for as long as it takes to begin slowly, is listed apart.
local function tell(limits, levels)
  local parts = {}
  local off = levels.used.OFF and levels.from.OFF > limiter.now_ms and levels.used.OFF or nil
  for i, limit in ipairs(limits) do
    local left, whole_us, withheld, taken = nil, 0, 0, nil
    if limit.form == 'rate' then
      local tat = tat_of(limit, levels)
      left = math.floor(tokens_left(limit.rate, limit.most, tat))
      whole_us = math.max(0, tat - now_us)
      if off then
        local owed = limit.most - math.floor(tokens_left(limit.rate, limit.most, math.min(tat, off * 1000 + limit.tolerance)))
        withheld, left = math.min(owed, limit.most), left + math.max(0, owed - limit.most)
      end
      taken = limit.most - withheld - left
    elseif limit.form == 'quota' then
      taken = used_of(limit, levels)
      left = limit.most - taken
      whole_us = window_end(limit) * 1000 - clock_us
    else
      taken = levels.held[limit.name] or 0
      left = most_at_once(limit, levels) - taken
      withheld = math.max(0, limit.most - taken - math.max(0, left))
    end
    parts[i] = table.concat({ limit.name, limit.form, int(limit.most), int(left), int(whole_us), int(taken), int(withheld) }, ' ')
    if limit.adapt then
      parts[i] = parts[i] .. ' ' .. adapting.text()
    end
  end
  if off and off > limiter.now_ms then
    parts[#parts + 1] = 'hold_off off ' .. int(off - limiter.now_ms)
  end
  return table.concat(parts, ';')
end

-- What shadow limits there are, where there are any, and what they would have kept waiting.
local function shadows()
  if not limiter.shadows then
    return {}
  end
  local counts = redis.call('HMGET', K_DESTINATION, 'would_wait', 'shadowed')
  return { tell(limiter.shadows[1], limiter.levels), key ~= NO_KEY and tell(limiter.shadows[2], read_key(key).levels) or '',
    counts[1] or '0', counts[2] or '' }
end

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
end
local of_key = key ~= NO_KEY and tell(limiter.key_limits, read_key(key).levels) or ''
if d.blocked > 0 then
  list_waiters(key, most)
end
local holds = most > 0 and holds_of(redis.call('ZREVRANGE', K_LEASES, 0, int(most - 1))) or {}
local own = holds_of_session(who)
for _, of in ipairs(most > 0 and redis.call('ZREVRANGE', K_SHARES, 0, MAX_LISTED - 1) or {}) do
  wanted[key_of(of)] = true
end
return { 'OK', int(d.epoch), tell(limiter.limits, limiter.levels), of_key, int(known.count()), int(d.blocked),
  records(most), rows, holds, own, int(math.max(0, d.learning_until - now_ms)), redis.call('HGET', K_DESTINATION, 'off_reason') or '',
  int(now_ms), int(limiter.now_ms), string.match(rows[1] or '', '(%S+ %S+ %S+ %S+)$') or '', int(limiter.admitted),
  int(limiter.refused), int(redis.call('HLEN', K_HOLDS)), redis.call('HGET', K_DESTINATION, 'by_band') or '', unpack(shadows()) }
