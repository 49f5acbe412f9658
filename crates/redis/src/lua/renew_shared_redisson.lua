-- Like renew_shared.lua, where the lock is a hash. Follows head.lua and lock_redisson.lua. The reader's key of our
-- shared holds is not declared: if it is on the other server, nothing is done.
local name, holds, id, ttl = { lock = KEYS[1], record = {} }, KEYS[2], ARGV[2]:match('^%x+'), tonumber(ARGV[3])
local now_ms = math.floor(now_us / 1000)
find_fields(name)
local ends_at = name.value and name.value:sub(1, 7) == 'shared.' and tonumber(call('ZSCORE', holds, id) or 0)
if not ends_at or ends_at <= now_ms then
  return { now_us, 'gone' }
end
local left = call('PTTL', name.lock)
local longest = math.max(ttl, left == -1 and last_end(holds) - now_ms or left)
if is_reader(name.field) then
  local result = redis.pcall('SET', timeout_key(name.lock, name.field, 1), '1', 'PX', int(longest))
  if result.err then
    return { now_us, 'TRYAGAIN ' .. result.err }
  end
end
-- The keys of Redisson's readers may be on the other server: if one of its readers holds, and another program removed
-- the expiry, a renewal after the migration sets the expiry.
if left ~= -1 or not name.others then
  prolong(name.lock, longest)
end
call('ZADD', holds, math.max(ends_at, now_ms + ttl), id)
outlive(holds, ttl + ENDED_LIFE)
return { now_us, 'extended' }
