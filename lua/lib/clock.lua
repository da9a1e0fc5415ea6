-- The only clock: Redis' own, read once, so that hosts need not agree on the time.
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
