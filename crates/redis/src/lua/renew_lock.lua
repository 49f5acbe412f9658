-- Extends an exclusive hold with no other key than the lock key. While a slot is migrating to another server, some keys
-- of a name may be on one server and some on the other, so only what depends on a single key is certain. Comes after
-- head.lua.
--
-- KEYS 1 lock
-- ARGV as in renew.lua, for one hold
-- Answers {server time in us, extended <ms left before>, gone, overwritten, broken, or the server's error}.
-- Invariant: id and token are compared; a renewal creates nothing and never shortens a hold. The record of the hold
-- stays true, so that later scripts can rely on the record: so a pushed grant stays unconfirmed.
local lock, expected, ttl = KEYS[1], ARGV[2], tonumber(ARGV[3])
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { now_us, value.err }
elseif value == expected or value == expected .. '?' then
  return { now_us, 'extended ' .. int(prolong(lock, ttl)) }
elseif value == expected .. '!' then
  return { now_us, 'broken' }
end
return { now_us, (not value or has_our_form(value)) and 'gone' or 'overwritten' }
