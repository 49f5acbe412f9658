-- Extends an exclusive hold by its lock alone: while a slot is migrating to another server, the keys of a name may be
-- on both, and only the content of a single key is certain. Follows head.lua.
--
-- KEYS 1 lock
-- ARGV as in renew.lua, for one hold
-- Answers {server time in us, extended, gone, broken, or the server's error}.
-- Invariant: id and token are compared; a renewal creates nothing and never shortens a hold. The record of the hold
-- stays true, so that later verbs continue from it: a pushed grant stays unconfirmed.
local lock, expected, ttl = KEYS[1], ARGV[2], tonumber(ARGV[3])
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { now_us, value.err }
elseif value == expected or value == expected .. '?' then
  prolong(lock, ttl)
  return { now_us, 'extended' }
end
return { now_us, value == expected .. '!' and 'broken' or 'gone' }
