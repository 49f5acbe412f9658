-- One name on one node of a Redlock. Stands before every verb of it.
--
-- A node knows of no other. Who holds is decided by the clients, from what a majority of the nodes say (`src/redlock`). Keys of a name
-- (<side> is "leasehold:{tag}"):
--   <lock>           STRING  "<id>-<attempt>" while a claim has the vote of this node; "broken-<id>" once an operator broke its hold.
--                            Expires with the lease. Anything else is another program's, and never touched.
--   <side>T<lock>    STRING  the newest token that was written here, and by whom: "<last> <first> <id> <end> <before> <since us> <owner>".
--                            <end> is "-" while that hold stands, or how it ended; <before> is how the one before it did.
--   <side>W<lock>    ZSET    claims that were told "taken" and listen, by when they first were
--   <side>V<lock>    HASH    claim id -> "<since us> <channel> <owner>" of those
--   <side>D<lock>    STRING  ids of dead claims: no request of one may create anything
-- and for the node
--   leasehold:{}B    STRING  "<born us> <longest ttl ms>": since when the node has what it has, and what its locks may last
--
-- Invariant: a token is written only where the lock of its claim stands, and only if it is larger than the one that is there.
--
-- Answers {server us, an answer for each item}. ARGV holds so many words for each item, and the floor, which is not used here.
local TOKEN_LIFE = '3600000' -- how long a token is remembered, in ms: later ones are larger by the clock alone
local DEAD_LIFE = 10000     -- how long a request may still arrive after its claim was ended, in ms
local WAIT_LIFE = 10000     -- a waiter that is to hear of a release asks more often than this, in ms
local MAX_WAITERS = 4096
local RUNG = '1'            -- up to this one in line, from 0, waiters are told of a release: one may be gone
local LONGEST = 4096        -- no string of ours is as long, in bytes
local LAST_BYTE = '4095'

local BORN = 'leasehold:{}B'

local call = redis.call
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]

-- Where integers have 64 bits, the quicker one is as exact; '..' alone would round.
local FORMAT = string.format('%d', 4503599627370496) == '4503599627370496' and '%d' or '%.0f'

local function int(number)
  return string.format(FORMAT, number)
end

local now = int(us)

-- What stands under the lock, false if nothing does; of another type than a string, its type in brackets.
local function value_under(lock)
  local value = redis.pcall('GETRANGE', lock, '0', LAST_BYTE)
  if type(value) ~= 'table' then
    return value ~= '' and value
  end
  local kind = redis.pcall('TYPE', lock)
  return '(' .. (kind.ok or 'no string') .. ')'
end

local function read(text)
  local last, first, id, ended, before, since, owner = (text or ''):match(
    '^(%d+) (%d+) (%x+) (%l?%-?) (%l) (%d+) (.*)$')
  if not last then
    return { last = 0, first = 0, id = '', ended = 'u', before = 'u', since = '0', owner = '' }
  end
  return {
    last = tonumber(last), first = tonumber(first), id = id, ended = ended, before = before, since = since, owner = owner,
  }
end

local function put(key, t)
  call('SET', key, int(t.last) .. ' ' .. int(t.first) .. ' ' .. t.id .. ' ' .. t.ended .. ' ' .. t.before .. ' ' .. t.since .. ' ' .. t.owner,
    'PX', TOKEN_LIFE)
end

-- How the hold of the newest token ended, as the next one is told.
local function ended(t)
  return t.ended == '-' and 'l' or t.ended
end

-- Writes a block of tokens for a claim whose lock stands here, unless as large a one is there; then false.
local function mint(key, t, first, tokens, id, owner)
  if t.id == id and t.first == first then
    return true
  elseif t.last >= first then
    return false
  end
  local before = t.id == id and t.before or ended(t)
  t.last, t.first, t.id, t.ended, t.before, t.since, t.owner = first + tokens - 1, first, id, '-', before, now, owner
  put(key, t)
  return true
end

local function is_of(value, id)
  return value and value:sub(1, 33) == id .. '-'
end

local function is_dead(key, id)
  return (call('GET', key) or ''):find(id, 1, true)
end

local function mark_dead(key, id)
  local dead = call('GET', key)
  if not dead or #dead > LONGEST then
    dead = ''
  end
  if not dead:find(id, 1, true) then
    call('SET', key, dead .. id .. ' ', 'PX', DEAD_LIFE)
  end
end

-- For how long the node has had what it has, in us; false if nobody knows, for it was emptied, or never used.
local function age()
  local born = tonumber((call('GET', BORN) or ''):match('^%d+'))
  return born and born <= us and us - born
end

-- What is missing here may have been forgotten: nobody else has had the vote of the node since.
local function is_young(quarantine)
  local has = age()
  return not has or has < quarantine * 1000
end

-- The claim waits no more.
local function forget(side, lock, id)
  call('ZREM', side .. 'W' .. lock, id)
  call('HDEL', side .. 'V' .. lock, id)
end

-- The lock is free: some who wait try at once. Whether any waited.
local function ring(side, lock)
  local waiters = call('ZRANGE', side .. 'W' .. lock, '0', RUNG)
  for _, id in ipairs(waiters) do
    local channel = (call('HGET', side .. 'V' .. lock, id) or ''):match('^%d+ (%S+) ')
    forget(side, lock, id)
    if channel then
      redis.pcall('PUBLISH', channel, 'ring ' .. id .. ' ' .. lock)
    end
  end
  return #waiters > 0
end

-- Answers each item by `one`, which is given the lock and its words.
local function each(words, one)
  local answers = { us }
  for at = 1, #KEYS do
    local base = (at - 1) * words
    answers[at + 1] = one(KEYS[at], unpack(ARGV, base + 1, base + words))
  end
  return answers
end
