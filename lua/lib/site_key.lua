-- The letters between a pool and a site with a part in it: `report` is the site's, `answer` the pool's.
local K_SITE = KEYS[4]
