-- Ends an exclusive hold with no other key than the lock key, while a slot is migrating to another server: see
-- renew_lock.lua.
--
-- KEYS 1 lock
-- ARGV as in release.lua, for one release
-- Answers {server time in us, freed, again, or the server's error}; again: other keys of the claim may be left, so the
-- release must be sent again later.
-- Invariant: only the lock of this claim is changed. The next script that has all keys of the name treats the hold as
-- expired, and grants to the head of the queue.
local lock, expected = KEYS[1], ARGV[2]
local min_hold, wants_tombstone = ARGV[3]:match('^%a (%d+) (%d)')
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { now_us, value.err }
end
local id, token = expected:match('^(%x+)%.(%d*)$')
local is_ours = value and (
  token ~= '' and value:match('^(%x+%.%d+)[?!]?$') == expected
  or token == '' and value:sub(1, #expected) == expected
)
if not is_ours then
  return { now_us, 'again' }
elseif min_hold == '0' then
  call('DEL', lock)
else
  call('PEXPIRE', lock, min_hold)
end
return { now_us, value == expected and wants_tombstone == '0' and 'freed' or 'again' }
