-- What the quick parts of the verbs share with name.lua. Stands before everything else.
--
-- Most grants and most places in line are kept as words, which cost less to write than msgpack. On the card of a name:
--   1 <server seconds> <micros> <token> <tokens> <id> <"?" unconfirmed or "-"> <channel> <owner>
-- and for a waiter of mode x:
--   1 <since, server us> <claim time ms> <tokens> <channel> <owner>
local ENDED_LIFE = 3600000   -- how long a name remembers an unclean end, in ms; also the reserve of cards and token floors
local LINE_LIFE = 70000      -- the keys of a line outlive the longest lease of a place in it, in ms
local LINE_LEAST = 62000     -- with less left they are given that much again
local WATCHERS = 3           -- so many at the head of the line are told when the lease runs out
local MAX_WAITERS = 16384
local LEAD = 10000           -- so far the counter of tokens may be ahead of the clock, in us: less than a restart takes
local LARGEST = 9000000000000000 -- no token is as large: numbers here are exact up to 2^53
local LONGEST = 4096         -- no string of ours is as long, in bytes: more is not read of what others may have written
local LONGEST_GAP = 10000    -- for so long a name is left to other programs at most, in ms

local call = redis.call
local ITEMS = (#ARGV - 1) / 3   -- of verbs that take many; where servers share the slots, more keys follow than locks
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]
local answers = { us } -- the server's time, then the answer to each item: nil until somebody gave one

local function int(number)
  return string.format('%.0f', number) -- '..' alone would round
end

local function outlive(key, ms)
  if call('PTTL', key) < ms then
    call('PEXPIRE', key, ms)
  end
end

-- As outlive(), and always writes: a server that may write no more, for another took its place, is to refuse.
local function prolong(key, ms)
  call('PEXPIRE', key, int(math.max(ms, call('PTTL', key))))
end

-- The beginning of the string under a key; false if there is none. What it says of another type, `run` decides.
local function string_at(key, run)
  local text = run('GETRANGE', key, 0, LONGEST - 1)
  return (text ~= '' or call('EXISTS', key) == 1) and text
end

-- What the client is told last: the server's microseconds when the connection was made, and whether who listens to our channels may
-- just be on the way here, with the slot: then that nobody listens proves nothing.
local function floor()
  return tonumber(ARGV[#ARGV]:match('^%d+'))
end

local function all_may_listen()
  return ARGV[#ARGV]:sub(-1) == 'm'
end

-- Sends news, to a channel in a slot where servers share the slots: how many listen, or an error.
-- Not to replicas: who listens there, because that was the master a moment ago, is not counted here, so what it would hear is void.
local function publish(channel, text)
  pcall(redis.set_repl, redis.REPL_NONE)
  local said = redis.pcall(channel:find('{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, text)
  pcall(redis.set_repl, redis.REPL_ALL)
  return said
end

-- What stands under the locks of all items: of one alone no more than a string of ours may have. One command for each of many would
-- cost more than all that is done with them, and what another wrote in the place of a hold is read whole once, when it is lost.
local function all_values()
  return ITEMS == 1 and { call('GETRANGE', KEYS[2], 0, LONGEST - 1) } or call('MGET', unpack(KEYS, 2, ITEMS + 1))
end

-- Mints tokens for some claims, all in a row: the last of them, and whether each claim gets one only, because the
-- counter is ahead of the clock, from which it goes on when the server has lost what it knew. One by one it falls behind.
-- nil if the counter is lost, or older than this connection: mint() in name.lua raises it; also if it holds no token of ours.
local function next_tokens(tokens, claims)
  local newest, single = call('INCRBY', KEYS[1], tokens), false
  if newest >= LARGEST then
    return nil
  end
  if newest - tokens <= floor() then
    outlive(KEYS[1], ENDED_LIFE) -- it may have been made by this
    return nil
  end
  if newest > us + LEAD and tokens > claims then
    newest, single = call('INCRBY', KEYS[1], int(claims - tokens)), true
  end
  if newest > us then
    -- The clock was set back: the counter must outlive its lead, as in mint().
    call('PEXPIREAT', KEYS[1], int(math.floor(newest / 1000) + ENDED_LIFE))
  end
  return newest, single
end
