-- Short notes of a namespace, in a slot with all else of it: of waits, or of deadlocks.
local K_NOTES = KEYS[1]
