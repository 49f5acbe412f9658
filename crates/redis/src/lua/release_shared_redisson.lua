-- Like release_shared.lua, where the lock is a hash. Follows head.lua, lock_redisson.lua and wake_redisson.lua. The
-- reader's key of our shared holds is not declared: if it is on the other server, it stays there until it expires.
local name, holds, id, token = { lock = KEYS[1], record = {} }, KEYS[2], ARGV[2]:match('^(%x+)%.(%d*)$')
local min_hold, wants_tombstone, _, wake_words = ARGV[3]:match('^%a (%d+) (%d) (%w+) ?(.*)$')
local now_ms = math.floor(now_us / 1000)
find_fields(name)
if not name.value or name.value:sub(1, 7) ~= 'shared.' or not call('ZSCORE', holds, id) then
  return { now_us, 'again' }
end
call('ZADD', holds, int(now_ms + min_hold), id)
local longest = tonumber(call('ZREVRANGE', holds, 0, 0, 'WITHSCORES')[2])
if longest <= now_ms then
  call('HDEL', name.lock, name.field)
  redis.pcall('DEL', timeout_key(name.lock, name.field, 1))
  if not name.others then
    call('DEL', name.lock)
    wake_waiters(name, wake_words)
  end
end
return { now_us, token ~= '' and wants_tombstone == '0' and 'freed' or 'again' }
