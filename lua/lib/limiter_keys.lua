--- @include "lib/keys"
-- Scripts of limiters get four keys more, in this order; headgate/redis/keys.py lists the same parts.
local K_HOLDS = KEYS[23]
local K_KEYED = KEYS[24]
local K_LINE = KEYS[25]
local K_SHARES = KEYS[26]
