-- Like renew_shared.lua, where the lock is a hash. Follows head.lua and lock_redisson.lua. The reader's key of our
-- shared holds is not declared: if it is on the other server, nothing is done.
local s, holds, id, ttl = { lock = KEYS[1], c = {} }, KEYS[2], ARGV[2]:match('^%x+'), tonumber(ARGV[3])
local now = math.floor(us / 1000)
find_fields(s)
local till = s.value and s.value:sub(1, 7) == 'shared.' and tonumber(call('ZSCORE', holds, id) or 0)
if not till or till <= now then
  return { us, 'gone' }
end
local longest = math.max(ttl, call('PTTL', s.lock))
if is_reader(s.field) then
  local result = redis.pcall('SET', timeout_key(s.lock, s.field, 1), '1', 'PX', int(longest))
  if result.err then
    return { us, 'TRYAGAIN ' .. result.err }
  end
end
prolong(s.lock, ttl)
call('ZADD', holds, math.max(till, now + ttl), id)
outlive(holds, ttl + ENDED_LIFE)
return { us, 'extended' }
