-- What the quick part of a verb shares with name.lua. Stands before both.
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

local call = redis.call
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]
local answers = { us } -- then, for each item, what its verb says; none yet: the quick part leaves it to the whole verb

local function int(number)
  return string.format('%.0f', number) -- '..' alone would round
end

local function outlive(key, ms)
  if call('PTTL', key) < ms then
    call('PEXPIRE', key, ms)
  end
end

-- Mints tokens in a row and answers the last, if the counter is whole: one that is lost, or older than this connection, is
-- raised by mint() in name.lua.
local function next_tokens(tokens)
  local newest = call('INCRBY', KEYS[1], tokens)
  if newest - tokens <= tonumber(ARGV[#ARGV]) then
    return nil
  elseif newest > us then
    -- It ran ahead of the clock, so it must outlive that lead: as mint() does.
    call('PEXPIREAT', KEYS[1], math.floor(newest / 1000) + ENDED_LIFE)
  end
  return newest
end
