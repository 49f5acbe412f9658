-- Extends a shared hold or permits with only two keys, while a slot is migrating to another server: see renew_lock.lua.
--
-- KEYS 1 lock · 2 the set of the holds of the name, with their ends
-- ARGV as in renew.lua, for one hold
-- Answers {server time in us, extended, gone, or the server's error}.
-- Invariant: as in renew_lock.lua. Only the id is compared: the token is in another key, and no two claims share an id.
local lock, holds, id, ttl = KEYS[1], KEYS[2], ARGV[2]:match('^%x+'), tonumber(ARGV[3])
local now_ms = math.floor(now_us / 1000)
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { now_us, value.err }
end
local ends_at = value and value:sub(1, 7) == 'shared.' and tonumber(call('ZSCORE', holds, id) or 0)
if not ends_at or ends_at <= now_ms then
  return { now_us, 'gone' }
end
prolong_shared(lock, holds, ttl)
call('ZADD', holds, math.max(ends_at, now_ms + ttl), id)
outlive(holds, ttl + ENDED_LIFE)
return { now_us, 'extended' }
