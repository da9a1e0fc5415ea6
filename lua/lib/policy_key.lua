-- The namespace's policy, in a slot with all else of the namespace.
local K_POLICY = KEYS[1]
