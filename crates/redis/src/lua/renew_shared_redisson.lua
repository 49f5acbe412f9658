-- Like renew_shared.lua, where the lock is a hash. Follows head.lua and lock_redisson.lua. The reader's key of our
-- shared holds is not declared: if it is on the other server, nothing is done.
local name, holds, id, ttl = { lock = KEYS[1], record = {} }, KEYS[2], ARGV[2]:match('^%x+'), tonumber(ARGV[3])
local now_ms = math.floor(now_us / 1000)
find_fields(name)
local ends_at = name.value and name.value:sub(1, 7) == 'shared.' and tonumber(call('ZSCORE', holds, id) or 0)
if not ends_at or ends_at <= now_ms then
  return { now_us, 'gone' }
end
local longest = math.max(ttl, call('PTTL', name.lock))
if is_reader(name.field) then
  local result = redis.pcall('SET', timeout_key(name.lock, name.field, 1), '1', 'PX', int(longest))
  if result.err then
    return { now_us, 'TRYAGAIN ' .. result.err }
  end
end
prolong(name.lock, ttl)
call('ZADD', holds, math.max(ends_at, now_ms + ttl), id)
outlive(holds, ttl + ENDED_LIFE)
return { now_us, 'extended' }
