-- One name on one node of a Redlock. Comes before the file of each request (claim, write, renew, release, break or
-- look).
--
-- A node knows no other node. The clients decide which claim holds, from the answers of a majority of the nodes
-- (`src/redlock`). Keys of a name (<side> is "leasehold:{tag}"):
--   <lock>           STRING  "<id>-<attempt>" while a claim has the vote of this node; "broken-<id>" after an operator
--                            broke its hold. Expires with the lease. Anything else is foreign, and never touched.
--   <side>T<lock>    STRING  the newest token that was written here:
--                            "<last> <first> <id> <end> <before> <since us> <owner>".
--                            <end> is "-" while its hold lasts, or how it ended; <before> is how the previous
--                            hold ended.
--   <side>W<lock>    ZSET    claims that were answered "taken" and listen, by the time of their first answer
--   <side>V<lock>    HASH    claim id -> "<since us> <channel> <owner>" of these claims
--   <side>D<lock>    STRING  tombstones: ids of claims of which no request may create anything
-- and for the node
--   leasehold:{}B    STRING  "<born us> <longest ttl ms>": since when the node has its data, and its longest lease
--
-- Invariant: a token is written only on a node where its claim has the lock, and only if it is larger than the newest
-- token there.
--
-- Answers {server time in us, an answer for each item}. ARGV holds the words of each item, and the unused floor.
local TOKEN_LIFE = '3600000' -- how long a token is remembered, in ms: by then the clock alone makes new tokens larger
local DEAD_LIFE = 10000     -- how long a request may still arrive after its claim was ended, in ms
local WAIT_LIFE = 10000     -- lifetime of the keys of waiters after a request of one, in ms: waiters ask more often
local MAX_WAITERS = 4096
local LAST_NOTIFIED = '1'   -- a release notifies the waiters up to this position, from 0: one of them may be gone
local MAX_STRING_BYTES = 4096 -- all our strings are shorter
local LAST_BYTE = '4095'    -- of MAX_STRING_BYTES, counted from 0
local ATTEMPT_AT = 34       -- the attempt in the value of a lock begins at this byte, after the id and a '-'

local BORN = 'leasehold:{}B'

local call = redis.call
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]

-- '%d' is faster, and on servers whose integers have 64 bits as exact as '%.0f'; '..' alone would round.
local FORMAT = string.format('%d', 4503599627370496) == '4503599627370496' and '%d' or '%.0f'

-- The text of a whole number.
local function int(number)
  return string.format(FORMAT, number)
end

local now_text = int(now_us) -- as it is stored and sent

-- The value of the lock; false if there is none; for another type than a string, the type in brackets.
local function value_under(lock)
  local value = redis.pcall('GETRANGE', lock, '0', LAST_BYTE)
  if type(value) ~= 'table' then
    return value ~= '' and value
  end
  local kind = redis.pcall('TYPE', lock)
  return '(' .. (kind.ok or 'no string') .. ')'
end

-- Parses the text of the newest token: in all files this is called the `block`, because it has all tokens from `first`
-- to `last`.
local function read_block(text)
  local last, first, id, end_letter, before, since, owner = (text or ''):match(
    '^(%d+) (%d+) (%x+) (%l?%-?) (%l) (%d+) (.*)$')
  if not last then
    return { last = 0, first = 0, id = '', ended = 'u', before = 'u', since = '0', owner = '' }
  end
  return {
    last = tonumber(last), first = tonumber(first), id = id, ended = end_letter, before = before, since = since,
    owner = owner,
  }
end

-- Stores a block.
local function put_block(key, block)
  local words = { int(block.last), int(block.first), block.id, block.ended, block.before, block.since, block.owner }
  call('SET', key, table.concat(words, ' '), 'PX', TOKEN_LIFE)
end

-- How the hold of the newest token ended, for the next holder: a hold whose end is not recorded has lapsed ('l').
local function end_of(block)
  return block.ended == '-' and 'l' or block.ended
end

-- Writes a block of tokens for a claim that has the lock here. Returns false if the newest token here is as large or
-- larger, otherwise true.
local function write_block(key, block, first, tokens, id, owner)
  if block.id == id and block.first == first then
    return true
  elseif block.last >= first then
    return false
  end
  local before = block.id == id and block.before or end_of(block)
  block.last, block.first, block.id, block.owner = first + tokens - 1, first, id, owner
  block.ended, block.before, block.since = '-', before, now_text
  put_block(key, block)
  return true
end

-- Whether the value of a lock is of this claim.
local function is_of(value, id)
  return value and value:sub(1, ATTEMPT_AT - 1) == id .. '-'
end

-- Whether a claim has ended on this node.
local function has_tombstone(key, id)
  return (call('GET', key) or ''):find(id, 1, true)
end

-- Stores a tombstone for a claim that ended.
local function add_tombstone(key, id)
  local tombstones = call('GET', key)
  if not tombstones or #tombstones > MAX_STRING_BYTES then
    tombstones = ''
  end
  if not tombstones:find(id, 1, true) then
    call('SET', key, tombstones .. id .. ' ', 'PX', DEAD_LIFE)
  end
end

-- How long the node has had its data, in us; false if unknown, because it was emptied or never used.
local function age()
  local born = tonumber((call('GET', BORN) or ''):match('^%d+'))
  return born and born <= now_us and now_us - born
end

-- Whether the node may have forgotten a lock that is missing here: the node's data is younger than the quarantine (in
-- ms). Such a node has voted for no other claim since it lost its data.
local function is_young(quarantine)
  local data_age = age()
  return not data_age or data_age < quarantine * 1000
end

-- Removes a claim from those that are to be notified of a release.
local function forget(side, lock, id)
  call('ZREM', side .. 'W' .. lock, id)
  call('HDEL', side .. 'V' .. lock, id)
end

-- Notifies the first waiters that the lock is free, so that they ask again at once. Returns whether any waited.
local function notify_waiters(side, lock)
  local waiters = call('ZRANGE', side .. 'W' .. lock, '0', LAST_NOTIFIED)
  for _, id in ipairs(waiters) do
    local channel = (call('HGET', side .. 'V' .. lock, id) or ''):match('^%d+ (%S+) ')
    forget(side, lock, id)
    if channel then
      redis.pcall('PUBLISH', channel, 'ring ' .. id .. ' ' .. lock)
    end
  end
  return #waiters > 0
end

-- Answers each item: calls `answer_item` with the lock and the words of the item.
local function answer_items(word_count, answer_item)
  local answers = { now_us }
  for i = 1, #KEYS do
    local base = (i - 1) * word_count
    answers[i + 1] = answer_item(KEYS[i], unpack(ARGV, base + 1, base + word_count))
  end
  return answers
end
