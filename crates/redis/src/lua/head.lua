-- Functions for the fast paths and name.lua. Comes before all other files of a script.
--
-- Most records and most queue entries are stored as words with blanks between them, which cost less to write than
-- msgpack. The record of a name:
--   1 <server seconds> <micros> <token> <tokens> <id> <"?" unconfirmed or "-"> <channel> <owner>
-- and the queue entry of a waiter of mode x:
--   1 <since, server us> <claim time ms> <tokens> <channel> <owner>
local ENDED_LIFE = 3600000   -- how long an unclean end is remembered, and records and counters outlive their use, in ms
local RECORD_SLACK = 60000   -- by how much less than ENDED_LIFE a record may outlive its hold, in ms
local QUEUE_LIFE = 70000     -- lifetime of the keys of a queue, in ms: longer than the longest lease of an entry
local MIN_QUEUE_LIFE = 62000 -- if less than this is left, the lifetime is extended
local WATCHERS = 3           -- so many waiters from the head on learn when the lease of the holder ends
local MAX_WAITERS = 16384
local MAX_LEAD = 10000       -- a counter further ahead of the clock gives no blocks, in us: less than a restart takes
local MAX_TOKEN = 9000000000000000 -- all tokens are smaller: numbers here are exact up to 2^53
local MAX_STRING_BYTES = 4096 -- all our strings are shorter; of a foreign value only so much is read
local MAX_GAP = 10000        -- how long a name is left to other programs at most, in ms

local call = redis.call
local ITEM_COUNT = (#ARGV - 1) / 3 -- in scripts for many items (in a cluster, other keys follow after the lock keys)
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2] -- the server's time, in microseconds
local answers = { now_us } -- the server's time, then the answer to each item; nil: not answered yet

-- The text of a whole number.
local function int(number)
  return string.format('%.0f', number) -- '..' alone would round
end

-- Extends the lifetime of a key to at least `ms`.
local function outlive(key, ms)
  if call('PTTL', key) < ms then
    call('PEXPIRE', key, ms)
  end
end

-- Like outlive(), but always writes: so a server that was replaced and accepts no writes refuses the script. Returns
-- how long the key would have lived, in ms; -1: for ever.
local function prolong(key, ms)
  local left = call('PTTL', key)
  call('PEXPIRE', key, int(math.max(ms, left)))
  return left
end

-- When the longest of shared holds or permits ends, in server ms; 0 if there is none. `holds`: the set of the holds.
local function last_end(holds)
  return tonumber(call('ZREVRANGE', holds, 0, 0, 'WITHSCORES')[2] or 0)
end

-- Like prolong(), for the lock of shared holds or permits. If another program removed the expiry, the lock lasts as
-- long as the longest of them.
local function prolong_shared(lock, holds, ms)
  local longest = call('PTTL', lock) == -1 and last_end(holds) - math.floor(now_us / 1000) or 0
  prolong(lock, math.max(ms, longest))
end

-- The beginning of the string under a key; false if there is none. `caller` is redis.call or redis.pcall: for a value
-- of another type redis.call raises the error, redis.pcall returns it.
local function string_at(key, caller)
  local text = caller('GETRANGE', key, 0, MAX_STRING_BYTES - 1)
  return (text ~= '' or call('EXISTS', key) == 1) and text
end

-- The floor of the token counter: the server's microseconds when the connection was made. It is the number in the last
-- argument.
local function floor()
  return tonumber(ARGV[#ARGV]:match('^%d+'))
end

-- Whether a missing listener proves nothing: the slot has just moved to this server, so the clients of its waiters may
-- not be subscribed here yet. Then the last argument ends with 'm'.
local function all_may_listen()
  return ARGV[#ARGV]:sub(-1) == 'm'
end

-- Sends a notification, in a cluster to a channel of the slot; returns the number of listeners, or an error. The
-- notification is not sent to replicas: a client that still listens at a replica, such as a former master, does not
-- count as a listener here, so a notification there would not belong to a valid grant.
local function publish(channel, text)
  pcall(redis.set_repl, redis.REPL_NONE)
  local result = redis.pcall(channel:find('{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, text)
  pcall(redis.set_repl, redis.REPL_ALL)
  return result
end

-- Whether the value of a lock has the form of one of ours, in the layout of lock_string.lua. The length of the id
-- matters: a foreign time with a fraction has hexadecimal digits and a point, too.
local function has_our_form(value)
  local id = value:match('^(%x+)%.%d+[?!]?$') or value:match('^shared%.(%x+)$')
  return id and #id == 32 or value:find('^kept%.%d+$')
end

-- The values of the locks of all items. For a single item, the value is read only up to the length of our own values.
-- For several items one MGET reads whole values, because one command for each item would cost more than the rest of the
-- script.
local function all_values()
  return ITEM_COUNT == 1 and { call('GETRANGE', KEYS[2], 0, MAX_STRING_BYTES - 1) }
    or call('MGET', unpack(KEYS, 2, ITEM_COUNT + 1))
end

-- Mints consecutive tokens for several claims. Returns the last token, and whether each claim gets only one token. Each
-- claim gets only one while the counter is ahead of the clock, so that the clock catches up: after a loss of data the
-- counter continues from the clock. Returns nil if the counter is lost, or not above the floor: then mint() in name.lua
-- raises the counter. Also returns nil if the counter has a foreign value.
local function next_tokens(tokens, claims)
  local newest, one_each = call('INCRBY', KEYS[1], tokens), false
  if newest >= MAX_TOKEN then
    return nil
  end
  if newest - tokens <= floor() then
    outlive(KEYS[1], ENDED_LIFE) -- this script may have created it
    return nil
  end
  if newest > now_us + MAX_LEAD and tokens > claims then
    newest, one_each = call('INCRBY', KEYS[1], int(claims - tokens)), true
  end
  if newest > now_us then
    -- The clock was set back: the counter must live longer than its lead, as in mint().
    call('PEXPIREAT', KEYS[1], int(math.floor(newest / 1000) + ENDED_LIFE))
  end
  return newest, one_each
end
