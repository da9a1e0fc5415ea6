--- @include "lib/account"
--- @include "lib/sendrate"
--- @include "lib/append"
--- @include "lib/covered"
--- @include "lib/spooled"
-- What a link brings: which of its entries are stored, as far as credit goes, the rate, and room for references. `puts` are
-- their places among ARGV, with the bytes of the payload of each, of all, and the number of the last entry that is done with.

-- Whether all bodies are references, or none is.
local function all_brought_are(references, at)
  for i = at + 1, #ARGV, 4 do
    if ARGV[i + 1] ~= 'skip' and is_reference(ARGV[i + 3]) ~= references then
      return false
    end
  end
  return true
end

-- Leaves out all but the first of them.
local function cut(puts, at, mark, allowed)
  local first = puts[allowed + 1]
  puts.mark, puts.bytes = math.max(mark, first > at + 1 and tonumber(ARGV[first - 4]) or 0), 0
  for i = 1, #puts do
    puts[i] = i <= allowed and puts[i] or nil
    puts.bytes = puts.bytes + (i <= allowed and puts.sizes[i] or 0)
  end
end

-- Chooses those above the mark that are paid; returns what the next one needs, if there is one. References pay at their store.
local function choose(puts, at, link, s, spools)
  local held_b, held_m = held(s)
  for i = at + 1, #ARGV, 4 do
    local seq, size = tonumber(ARGV[i]), payload_size(ARGV[i + 3])
    if seq > puts.mark and ARGV[i + 1] ~= 'skip' and not (puts.here and puts.here[seq]) then
      local paid = spools or (puts.bytes + size <= held_b and #puts + 1 <= held_m)
      puts.above = paid and not spools and not is_covered(link, s, puts.bytes + size, #puts + 1, d.limit_bytes)
      if not paid or puts.above then
        return size
      end
      puts[#puts + 1], puts.sizes[#puts + 1], puts.bytes = i, size, puts.bytes + size
    end
    puts.mark = math.max(puts.mark, seq)
  end
end

-- Leaves out those that the rate does not let go now; returns in how many ms it lets go more, if it does.
local function within_rate(puts, at, mark, link, s)
  if #puts > 0 and (d.send_rate or d.send_byte_rate) then
    local allowed, again = within_send_rate(link, s.weight, puts.sizes)
    puts.rated = true
    if allowed < #puts then
      cut(puts, at, mark, allowed)
      return again
    end
  end
end

-- Leaves out references that have no room; returns whether all have.
local function within_references(puts, at, mark, held_m)
  local fits, bytes = references_that_fit(at, #puts, held_m, puts)
  puts.references = bytes
  if fits < #puts then
    cut(puts, at, mark, fits)
    return false
  end
  return true
end

local function charge_rate(puts, link, s)
  if puts.rated then
    charge_send_rate(link, s.weight, #puts, puts.bytes)
  end
end

-- Gives back what is in hand where the link waits, or may bring nothing, and has it ask for all that it needs: two that wait,
-- each with what the other lacks, would do so for ever. That was no part of its turn. Returns what it holds.
local function keep_nothing_in_line(link, s)
  local bytes, messages = held(s)
  if (s.since > 0 or d.stopped) and bytes + messages > 0 then
    void_credit(s)
    if s.since > 0 then
      s.need, s.need_m, s.want, s.want_m = s.need + bytes, s.need_m + messages, s.want + bytes, s.want_m + messages
      local unused = messages > 0 and math.min(bytes, s.need - s.granted) or 0
      s.turn = math.max(0, s.turn - math.floor(PRECISION * unused / math.max(s.weight, 1)))
      leave_line(link)
      join_line(link, s)
    end
    hand_over(link, s)
  end
  return held(s)
end
