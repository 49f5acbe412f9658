-- Like release_lock.lua, where the lock is a hash. Follows head.lua, lock_redisson.lua and wake_redisson.lua.
local mine, s = ARGV[2], { lock = KEYS[1], c = {} }
local min_hold, wants_tombstone, _, wake = ARGV[3]:match('^%a (%d+) (%d) (%w+) ?(.*)$')
find_fields(s)
local id, token = mine:match('^(%x+)%.(%d*)$')
local ours = s.value
  and (token ~= '' and s.value:match('^(%x+%.%d+)[?!]?$') == mine or token == '' and s.value:sub(1, #mine) == mine)
if not ours then
  return { us, 'again' }
end
local value = s.value
if min_hold == '0' then
  drop_lock(s)
  wake_waiters(s, wake)
else
  call('PEXPIRE', s.lock, min_hold)
end
return { us, value == mine and wants_tombstone == '0' and 'freed' or 'again' }
