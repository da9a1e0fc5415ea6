-- Shares of keys beside one another: of `<key, or its begin and *>=<weight>;...` the first that matches counts.
local function weight_among(weights, key)
  for pattern, weight in string.gmatch(weights, '([^=;]+)=(%d+)') do
    local prefix = string.match(pattern, '^(.*)%*$')
    if pattern == key or (prefix and string.sub(key, 1, #prefix) == prefix) then
      return weight + 0, true
    end
  end
  return 1, false
end
