-- Ends an exclusive hold by its lock alone, while a slot is migrating to another server: see renew_lock.lua.
--
-- KEYS 1 lock
-- ARGV as in release.lua, for one release
-- Answers {server us, freed, again, or the server's error}; again: more than the lock may be left of the claim.
-- Invariant: only the own lock is touched. The next verb that sees all keys treats the hold as expired, and grants to
-- the head of the queue.
local lock, mine = KEYS[1], ARGV[2]
local min_hold, wants_tombstone = ARGV[3]:match('^%a (%d+) (%d)')
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { us, value.err }
end
local id, token = mine:match('^(%x+)%.(%d*)$')
local ours = value
  and (token ~= '' and value:match('^(%x+%.%d+)[?!]?$') == mine or token == '' and value:sub(1, #mine) == mine)
if not ours then
  return { us, 'again' }
elseif min_hold == '0' then
  call('DEL', lock)
else
  call('PEXPIRE', lock, min_hold)
end
return { us, value == mine and wants_tombstone == '0' and 'freed' or 'again' }
