-- The registry of a namespace's nodes, in a slot with all else of the namespace; headgate/redis/keys.py lists the same.
local K_NODES = KEYS[1]
local K_BEATS = KEYS[2]
