-- A level as it is set, or the share that it is set to of the limit in force; nil where there is no limit.
local function level(set, limit)
  local share = type(set) == 'string' and string.match(set, '^(.*)%%$')
  if not share then
    return set
  end
  return limit < math.huge and math.floor(limit * share / 100) or nil
end
