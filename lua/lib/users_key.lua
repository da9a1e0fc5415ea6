-- The namespace's users, in a slot with all else of the namespace.
local K_USERS = KEYS[1]
