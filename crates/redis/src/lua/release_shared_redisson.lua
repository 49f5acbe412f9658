-- Like release_shared.lua, where the lock is a hash. Follows head.lua, lock_redisson.lua and wake_redisson.lua. The
-- reader's key of our shared holds is not declared: on the other server it expires.
local s, holds, id, token = { lock = KEYS[1], c = {} }, KEYS[2], ARGV[2]:match('^(%x+)%.(%d*)$')
local min_hold, wants_tombstone, _, wake = ARGV[3]:match('^%a (%d+) (%d) (%w+) ?(.*)$')
local now = math.floor(us / 1000)
find_fields(s)
if not s.value or s.value:sub(1, 7) ~= 'shared.' or not call('ZSCORE', holds, id) then
  return { us, 'again' }
end
call('ZADD', holds, int(now + min_hold), id)
local longest = tonumber(call('ZREVRANGE', holds, 0, 0, 'WITHSCORES')[2])
if longest <= now then
  call('HDEL', s.lock, s.field)
  redis.pcall('DEL', timeout_key(s.lock, s.field, 1))
  if not s.others then
    call('DEL', s.lock)
    wake_waiters(s, wake)
  end
end
return { us, token ~= '' and wants_tombstone == '0' and 'freed' or 'again' }
