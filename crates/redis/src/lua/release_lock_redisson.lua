-- Like release_lock.lua, where the lock is a hash. Follows head.lua, lock_redisson.lua and wake_redisson.lua.
local expected, name = ARGV[2], { lock = KEYS[1], record = {} }
local min_hold, wants_tombstone, _, wake_words = ARGV[3]:match('^%a (%d+) (%d) (%w+) ?(.*)$')
find_fields(name)
local id, token = expected:match('^(%x+)%.(%d*)$')
local is_ours = name.value and (
  token ~= '' and name.value:match('^(%x+%.%d+)[?!]?$') == expected
  or token == '' and name.value:sub(1, #expected) == expected
)
if not is_ours then
  return { now_us, 'again' }
end
local value = name.value
if min_hold == '0' then
  drop_lock(name)
  wake_waiters(name, wake_words)
else
  call('PEXPIRE', name.lock, min_hold)
end
return { now_us, value == expected and wants_tombstone == '0' and 'freed' or 'again' }
