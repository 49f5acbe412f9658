-- Ends a shared hold or permits with only two keys, while a slot is migrating to another server: see renew_lock.lua.
--
-- KEYS 1 lock · 2 the set of the holds of the name, with their ends
-- ARGV as in release.lua, for one release
-- Answers {server time in us, freed, again, or the server's error}; again: other keys of the claim may be left, so the
-- release must be sent again later.
-- Invariant: as in release_lock.lua. The hold ends now and stays in its set, so that the next script that has all keys
-- of the name removes the hold.
local lock, holds, id, token = KEYS[1], KEYS[2], ARGV[2]:match('^(%x+)%.(%d*)$')
local min_hold, wants_tombstone = ARGV[3]:match('^%a (%d+) (%d)')
local now_ms = math.floor(now_us / 1000)
local value = string_at(lock, redis.pcall)
if type(value) == 'table' then
  return { now_us, value.err }
elseif not value or value:sub(1, 7) ~= 'shared.' or not call('ZSCORE', holds, id) then
  return { now_us, 'again' }
end
call('ZADD', holds, now_ms + min_hold, id)
local longest = tonumber(call('ZREVRANGE', holds, 0, 0, 'WITHSCORES')[2])
if longest > now_ms then
  call('PEXPIRE', lock, int(longest - now_ms))
else
  call('DEL', lock)
end
return { now_us, token ~= '' and wants_tombstone == '0' and 'freed' or 'again' }
