-- Extends a shared hold or permits by two keys, while a slot is on its way to another server: see renew_lock.lua.
--
-- KEYS 1 lock · 2 when the holds beside it end
-- ARGV as of renew.lua, for one hold
-- Answers {server us, kept, gone, or the server's error}.
-- Invariant: as of renew_lock.lua. The id alone is compared: the token stands elsewhere, and no two claims have one id.
local lock, holds, id, ttl = KEYS[1], KEYS[2], ARGV[2]:match('^%x+'), tonumber(ARGV[3])
local now = math.floor(us / 1000)
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { us, value.err }
end
local till = value and value:sub(1, 7) == 'shared.' and tonumber(call('ZSCORE', holds, id) or 0)
if not till or till <= now then
  return { us, 'gone' }
end
prolong(lock, ttl)
call('ZADD', holds, math.max(till, now + ttl), id)
outlive(holds, ttl + ENDED_LIFE)
return { us, 'kept' }
