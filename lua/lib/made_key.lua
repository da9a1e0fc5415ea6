-- What a user of the namespace made over nodes: names of destinations, scored with the ms at which their making began.
local K_MADE = KEYS[1]
