-- Which run of a server a call is made through, and what its caller found out about the one that was in charge before:
--   B    nothing; where the state was served by another one last, the call is refused with the name of that one
--   B<A  all that A ever answered is here: B goes on where A ended
--   B!   some of it may be lost
-- Behind the point stands the replication id that B got as it was promoted: it may have been a replica that was behind.
local function name_run(run_id)
  return string.match(run_id, '^([^.<!]+)%.?(%x*)([<!]?)(.*)$')
end

-- Returns the run that is in charge now, its promotion, and whether state may be lost; nil where it is the same as before.
local function next_run(run_id, known, key)
  local run, promotion, sign, before = name_run(run_id)
  local last = redis.call('HGET', key, 'promotion')
  if run == known and (promotion == '' or promotion == last or not last) then
    return nil
  end
  local whole = (last or '') == '' and known or known .. '.' .. last
  if sign == '' or (sign == '<' and before ~= whole) then
    error('RUN ' .. whole, 0)
  end
  return run, promotion, sign == '!'
end
