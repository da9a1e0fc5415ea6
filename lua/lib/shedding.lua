--- @include "lib/refused"
-- Bands that are refused at once where limits are filled so far: '<band>=<thousandths>;...', each for the bands from that one on.
-- The answer to what is refused for that; nil for what is not.
local function shed(key, amounts)
  local function shed_above(band)
    local above, of = nil, -1
    for from, share in string.gmatch(d.shed, '([0-7])=(%d+)') do
      if from + 0 <= band and from + 0 > of then
        above, of = share + 0, from + 0
      end
    end
    return above
  end

  local function fill_of(limit, levels)
    local taken = levels.held[limit.name] or 0
    if limit.form == 'rate' then
      taken = limit.most - tokens_left(limit.rate, limit.most, tat_of(limit, levels))
    elseif limit.form == 'quota' then
      taken = used_of(limit, levels)
    end
    return math.floor(1000 * taken / limit.most)
  end

  local band, k = band_of(amounts), read_key(key)
  local above = shed_above(band)
  for _, amount in ipairs(above and amounts_of(amounts) or {}) do
    for i = 1, 2 do
      local limit, levels = limit_and_levels(k, i, amount[1])
      local fill = limit and fill_of(limit, levels) or -1
      if fill >= above then
        local whose = i == 1 and 'all' or 'key'
        count_refusal(limit.name, whose)
        by_band.count(band, 3, 1)
        return table.concat({ 'shed', int(band), int(fill), limit.name, whose }, ' ')
      end
    end
  end
end
