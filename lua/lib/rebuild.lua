--- @include "lib/pool"
-- A pool that may have lost state grants nothing new until somebody has asked all members what they hold.
local REBUILD_MS = 2000 -- one process at a time does, unless it takes longer

-- Whether the caller is to.
local function is_to_ask()
  if p.learning == 0 or (p.rebuild_ms > now_ms and p.rebuild_ms <= now_ms + REBUILD_MS) then
    return false
  end
  p.rebuild_ms = now_ms + REBUILD_MS
  return true
end
