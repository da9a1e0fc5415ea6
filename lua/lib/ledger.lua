--- @include "lib/destination"
-- One entry a call that changed something: version,time,op,session,bytes,messages,first,detail,counters after,epoch.
local notes = {}

local function note(...)
  notes[#notes + 1] = table.concat({ ... }, ':')
end

local function note_lost(count)
  d.lost = count
  note('lost', int(count))
end

-- `key`: of another one's ledger.
local function write_ledger(op, sid, bytes, messages, first, key)
  if d.ledger == 'off' then
    return
  end
  d.ledger_seq = d.ledger_seq + 1
  redis.call('XADD', key or K_LEDGER, 'MAXLEN', '~', d.ledger_keep, int(d.ledger_seq) .. '-0', 'e',
    string.format('1,%d,%s,%s,%d,%d,%d,%s,%d,%d,%d,%d,%d', now_ms, op, sid, bytes, messages, first,
      table.concat(notes, ';'), d.pending_bytes, d.pending_messages, d.leased_bytes, d.leased_messages, d.epoch))
end
