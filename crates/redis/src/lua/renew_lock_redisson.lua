-- Like renew_lock.lua, where the lock is a hash. Follows head.lua and lock_redisson.lua.
local lock, expected, ttl = KEYS[1], ARGV[2], tonumber(ARGV[3])
local count = redis.pcall('HGET', lock, (field_of(expected, 'x')))
if type(count) == 'table' then
  return { now_us, count.err }
elseif count == COUNTS[''] or count == COUNTS['?'] then
  return { now_us, 'extended ' .. int(prolong(lock, ttl)) }
end
return { now_us, count == COUNTS['!'] and 'broken' or 'gone' }
