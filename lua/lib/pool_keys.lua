-- The scripts of a pool get its keys in this order; headgate/redis/keys.py lists the same parts.
local K_POOL = KEYS[1]
local K_MEMBERS = KEYS[2]
local K_LINE = KEYS[3]
