--- @include "lib/limits"
--- @include "lib/sides"
-- Shadow limits stand beside the real ones and have their names. They are judged and charged as if they bound, and hold nobody up.
-- What is held at once both count together; of rates and quotas a shadow limit has a level of its own, with SHADOW before its name.

-- Those of all together and those of each key, as lists and by name. Of a name that is no real limit, or one of the other sort,
-- nobody says amounts.
local function read_shadows(...)
  local texts, shadows = { ... }, { {}, {} }
  for i = 1, 2 do
    for _, limit in ipairs((parse_limits(texts[i]))) do
      local name, real, own = limit.name, limiter.forms[limit.name], shadows[i]
      if real and (real.form == 'at_once') == (limit.form == 'at_once') then
        limit.name = limit.form == 'at_once' and name or SHADOW .. name
        limiter.forms[limit.name] = limiter.forms[limit.name] or limit
        own[#own + 1], own[name] = limit, limit
      end
    end
  end
  return shadows
end
