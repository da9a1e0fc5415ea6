--[[
  join - take in what another slice of a limiter has of keys that are pinned to this one; or forget what this has of others' keys.

  What is held in the other slice counts as held here until this hears that it is less: nothing more is admitted there. While keys are
  on their way it may be repeated: the later moment counts of a rate, and the higher count of a quota. Once they are where they belong
  what was settled late comes on top: repeated, it is owed twice, never less.

  KEYS  the destination's and a limiter's, as lib/limiter_keys
  ARGV[1] run_id   run      the server's run id as the caller learnt it when it connected
  ARGV[2] version  total    of the pins in force
  ARGV[3] from     0 to 47  the slice that they come from; this one's own number has it forget that, but for what is held here
  ARGV[4..] key, record     up to 128 of name; levels  as `parted` returns them
  Returns {code}
  Codes    OK, STALE (other pins are in force), UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/queueing"
--- @include "lib/parting"
local run_id, version, from = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

if not load_limiter(run_id) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'limiter' then
  return { 'KIND', d.kind }
elseif not limiter.pins or limiter.pins.version ~= version then
  return { 'STALE' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: what is taken in lets nobody do more
local own = limiter.pins.own
for at = 4, #ARGV, 2 do
  local levels, is_own = read_key(ARGV[at]).levels, pinned.slice_of(ARGV[at], limiter.pins.slices) == own
  if from ~= own and is_own then
    take_over(levels, int(from), ARGV[at + 1], version % 2 == 0)
    stir_key(ARGV[at])
  elseif from == own and not is_own then
    let_go(levels, ARGV[at + 1])
  end
end
if d.blocked > 0 then
  serve_line()
end
if limiter.banded then
  save_clocks()
end
by_band.save()
save_holds()
if #notes > 0 then
  note('levels', for_ledger(levels_text(limiter.levels)))
  write_ledger('admit', '-', 0, 0, 0)
end
save_limiter()
return { 'OK' }
