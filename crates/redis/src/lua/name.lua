-- One name on the server: its holders, its queue, and how the last hold ended. Precedes the script of every verb.
--
-- Short names in all files: s a name as load() reads it, s.c its record, h a holder, e an entry of <side>e. In a record
-- `ended.upto` is the newest token to which the stored end applies, `till` a time in server ms; `run` is since when the
-- name has passed from one of our claims to the next, `rest` until when it is left to other programs, both in server
-- ms. `kept` is a minimum hold time, `nonce` the id in "shared.<id>".
--
-- The algorithm is the pure machine in crates/core/src/pure/lock_state; this is its storage. Keys of a name, all in one
-- slot (<side> is "leasehold:{tag}", the tag chosen by the slot of the lock key):
--   <lock>           exclusive: "<id>.<token>", then "?" while a pushed grant is unconfirmed or "!" once broken;
--                            "kept.<token>" during a minimum hold time; "shared.<id>" beside shared holds and permits.
--                            Expires with the hold. Anything else, of any type, is a foreign lock, and never touched.
--                            A STRING with lock_string.lua before this file, a HASH with lock_redisson.lua.
--   <side>c<lock>    STRING  the record: layout version, kind, exclusive holder, how the last hold ended. Exists
--                            while a claim holds or waits (msgpack, or words: head.lua).
--   <side>q<lock>    ZSET    the queue: claim id by order of arrival
--   <side>e<lock>    HASH    claim id -> entry of a waiter, a shared holder or a permit (msgpack, or words)
--   <side>z<lock>    ZSET    claim id of each waiter -> when its entry ends, in server ms
--   <side>h<lock>    ZSET    claim id of each shared holder or permit -> when its hold ends, in server ms
--   <side>d<lock>    ZSET    tombstones: no request of these claims may create anything; claim id -> end, in server ms
--   <side>s<lock>    STRING  another program was seen under the lock in the last minutes
-- and for all names of a prefix together
--   <counter>        STRING  the newest token; expires an hour after the time that it equals in microseconds
--
-- Invariant: only settle() grants to the queue, or hand_over() in release_quick.lua where it would do the same, and
-- every verb that may have freed the name runs it. Only the server's clock decides what has expired. Only new claims
-- may be refused for lack of memory: once a script has written, the server refuses none of its further writes for that.
--
-- KEYS[1] is the counter in every script; the locks follow. In a cluster the other keys of each name come after them,
-- all that a verb may touch: a server that has only some of them does nothing. The counter is then that of the slot.

local VERSION = 1
local REQUEST_LIFE = 10000   -- how long a request may still arrive after its claim was ended, in ms
local MAX_HOLDERS = 16384
local PRUNED_AT_ONCE = 1000  -- bounds one script
local SEEN_LIFE = 300000     -- how long a foreign lock is remembered, in ms
local WORSE = { c = 0, u = 1, a = 2, l = 3, b = 4 } -- clean, unknown, abandoned, lapsed, broken

local counter = KEYS[1]
local now = math.floor(us / 1000)
local requester -- the claim of this request: its answer replaces the notification

-- A value that another program wrote may be no table, or not msgpack.
local function unpacked(raw)
  local is_packed, table_of = pcall(cmsgpack.unpack, raw)
  if is_packed and type(table_of) == 'table' then
    return table_of
  end
  error('ERR cannot read what is packed', 0)
end

-- Reads a record, in words or msgpack.
local function read(record)
  local seconds, micros, token, tokens, id, state, channel, owner = record:match(
    '^1 (%d+) (%d+) (%d+) (%d+) (%x+) (%S) (%S+) (.*)$')
  if not seconds then
    return unpacked(record)
  end
  return {
    v = VERSION, mode = 'x', limit = 0, newest = token + tokens - 1, holder = {
      id = id, token = tonumber(token), tokens = tonumber(tokens), since = seconds * 1000000 + micros, prev = 'c',
      owner = owner, state = state == '?' and state or '', channel = channel,
    },
  }
end

-- The record of a plain hold in words, so that the fast paths understand it.
local function in_words(c)
  local h = c.holder
  if c.mode ~= 'x' or c.ended or c.run or h.prev ~= 'c' or h.state ~= '' and h.state ~= '?' or not h.channel then
    return nil
  end
  return table.concat({
    VERSION, int(math.floor(h.since / 1000000)), int(h.since % 1000000), int(h.token), h.tokens, h.id,
    h.state == '?' and '?' or '-', h.channel, h.owner,
  }, ' ')
end

-- Reads a name; nil if its record is of another version.
local function load(lock, side)
  local s = {
    lock = lock, side = side, record = side .. 'c' .. lock, queue = side .. 'q' .. lock,
    entries = side .. 'e' .. lock, entry_ends = side .. 'z' .. lock, holds = side .. 'h' .. lock,
    tombstones = side .. 'd' .. lock,
  }
  local record = string_at(s.record, call)
  s.c = record and read(record) or { v = VERSION }
  if s.c.v ~= VERSION then
    return nil
  end
  find_lock(s)
  s.has_record = record and true
  if s.value and not s.c.mode then
    -- One of our holds without its record: the value of the lock still counts.
    local id, token, state = s.value:match('^(%x+)%.(%d+)([?!]?)$')
    if id and #id == 32 then
      s.c.mode, s.c.limit, s.dirty = 'x', 0, true
      s.c.holder = { id = id, token = tonumber(token), tokens = 1, since = us, prev = 'u', owner = '', state = state }
      s.c.newest = s.c.holder.token
    end
  end
  return s
end

local function entry(s, id)
  local raw = call('HGET', s.entries, id)
  local since, claim, tokens, channel, owner = (raw or ''):match('^1 (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not since then
    return raw and unpacked(raw) or nil
  end
  return {
    mode = 'x', count = 1, limit = 0, claim = tonumber(claim), tokens = tonumber(tokens), channel = channel,
    owner = owner, since = tonumber(since), state = 'waiting',
  }
end

-- Writes an entry.
local function put(s, id, e)
  local plain = e.mode == 'x' and e.state == 'waiting' and not e.till
  local words = plain and table.concat({ VERSION, int(e.since), int(e.claim), int(e.tokens), e.channel, e.owner }, ' ')
  call('HSET', s.entries, id, words or cmsgpack.pack(e))
end

-- The value of the lock key for this exclusive holder.
local function value_of(h)
  if h.state == 'kept' then
    return 'kept.' .. int(h.token)
  end
  return h.id .. '.' .. int(h.token) .. h.state
end

-- Remembers for some minutes that another program uses the lock, which then gets gaps: see leave_gap() in release.lua.
local function note_foreign(s)
  local seen = s.side .. 's' .. s.lock
  if call('PTTL', seen) < SEEN_LIFE / 2 then
    call('SET', seen, '1', 'PX', SEEN_LIFE)
  end
end

local function has_queue(s)
  return call('EXISTS', s.queue) == 1
end

-- Writes the record if it changed (s.dirty), or removes it if it is no longer needed. A hold lasts at least `held` ms.
-- The expiry of an unchanged record is extended, so that the record outlives its content.
local function save(s, held)
  update_others(s)
  local c, life = s.c, 0
  if not s.dirty then
    if c.mode then
      local lasts = math.max(held or 0, call('PTTL', s.lock))
      if call('PTTL', s.record) < lasts + ENDED_LIFE / 2 then
        call('PEXPIRE', s.record, lasts + ENDED_LIFE)
      end
    elseif s.has_record and call('PTTL', s.record) < QUEUE_LEAST and has_queue(s) then
      call('PEXPIRE', s.record, QUEUE_LIFE)
    end
    return
  elseif c.mode then
    life = math.max(held or 0, call('PTTL', s.lock)) + ENDED_LIFE
  elseif has_queue(s) then
    life = QUEUE_LIFE
  else
    c.limit = nil
  end
  if c.ended then
    life = math.max(life, c.ended.till - now)
  end
  if life > 0 then
    call('SET', s.record, in_words(c) or cmsgpack.pack(c), 'PX', life)
  elseif s.has_record then
    call('DEL', s.record)
  end
end

-- The first write of a script that must not fail for lack of memory: it changes nothing, and after a first write the
-- server refuses no further one.
local function arm(s)
  call('HDEL', s.entries, '')
end

local function add_tombstone(s, id)
  for _, over in ipairs(call('ZRANGEBYSCORE', s.tombstones, '-inf', now, 'LIMIT', 0, PRUNED_AT_ONCE)) do
    call('ZREM', s.tombstones, over)
  end
  call('ZADD', s.tombstones, now + REQUEST_LIFE, id)
  outlive(s.tombstones, REQUEST_LIFE)
end

local function has_tombstone(s, id)
  local till = call('ZSCORE', s.tombstones, id)
  return till and tonumber(till) > now
end

-- Remembers how a hold ended, for the next grant; of concurrent holds the worst end counts.
local function note_end(s, token, how)
  local c = s.c
  s.dirty = true
  local beside = c.ended and token <= c.ended.upto
  if beside and WORSE[c.ended.how] > WORSE[how] then
    how = c.ended.how
  end
  if how == 'c' then
    c.ended = nil
  else
    c.ended = { how = how, upto = c.newest or token, till = now + ENDED_LIFE }
  end
end

-- Removes a claim that missed its grant from the queue; its entry stays until its next request, or until the entry
-- ends.
local function silence(s, id, e)
  e.state, e.token = 'silent', nil
  local till = e.till or tonumber(call('ZSCORE', s.entry_ends, id) or 0)
  if till > now then
    e.till = nil
    put(s, id, e)
    call('ZADD', s.entry_ends, till, id)
    outlive(s.entries, QUEUE_LIFE)
    outlive(s.entry_ends, QUEUE_LIFE)
  else
    call('HDEL', s.entries, id)
    call('ZREM', s.entry_ends, id)
  end
end

-- Records the end of a hold that expired.
local function lapse(s, id, h, e)
  if h.state == 'kept' then
    return
  end
  note_end(s, h.token, h.state == '!' and 'b' or 'l')
  if h.state == '?' then
    -- The client may have received the grant and worked until the deadline, so the grant is reported to the next
    -- holder. The claim may ask again.
    if e then
      silence(s, id, e)
    end
  else
    add_tombstone(s, id)
  end
end

-- Removes a shared holder or a permit.
local function remove_holder(s, id, e)
  s.dirty = true
  call('ZREM', s.holds, id)
  call('HDEL', s.entries, id)
  s.c.count = s.c.count - 1
  s.c.used = s.c.used - e.count
end

-- Shortens the sentinel (the lock "shared.<id>") to the longest remaining hold, after shared holders are gone. The time
-- counts from `now`, not from the clock: before Redis 7.2 the clock goes on while a script runs, and an expired key
-- vanishes at once, although the next holders depend on it.
local function shrink(s)
  s.dirty = true
  local longest = call('ZREVRANGE', s.holds, 0, 0, 'WITHSCORES')[2]
  local is_intact = s.value == 'shared.' .. s.c.nonce
  if longest and is_intact then
    shorten_lock(s, int(longest - now))
    return
  end
  if is_intact then
    drop_lock(s)
  end
  s.c.mode = nil
end

-- Removes what has expired.
local function prune(s)
  local c = s.c
  if c.mode == 'x' then
    local h = c.holder
    if s.value ~= value_of(h) then
      c.mode, c.holder, s.dirty = nil, nil, true
      lapse(s, h.id, h, h.state == '?' and entry(s, h.id))
    end
  elseif c.mode then
    -- Without the sentinel another program may have taken the key: no hold that depended on it is valid.
    local intact = s.value == 'shared.' .. c.nonce
    local over = intact and now or '+inf'
    for _, id in ipairs(call('ZRANGEBYSCORE', s.holds, '-inf', over)) do
      local e = entry(s, id) or { state = 'kept', count = 0 }
      remove_holder(s, id, e)
      lapse(s, id, e, e)
    end
    if call('EXISTS', s.holds) == 0 then
      shrink(s)
    end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', s.entry_ends, '-inf', now, 'LIMIT', 0, PRUNED_AT_ONCE)) do
    s.dirty = true
    call('ZREM', s.entry_ends, id)
    call('ZREM', s.queue, id)
    call('HDEL', s.entries, id)
  end
end

-- Whether the claim of this entry can be granted beside the present holders.
local function fits(s, e)
  local c = s.c
  if bars(s, e) then
    return false
  elseif e.mode == 'x' then
    return not c.mode
  elseif not c.mode then
    return true
  end
  return c.mode == e.mode and c.count < MAX_HOLDERS and (e.mode == 's' or c.used + e.count <= e.limit)
end

-- The newest token. nil if its key holds a foreign value, or one that cannot be counted on from exactly: then nothing
-- is granted, and the claim gets an error.
local function newest_token(s)
  local text, others = string_at(counter, redis.pcall) or '0', newest_foreign_token(s)
  local newest = others and type(text) == 'string' and text:match('^%d+$') and math.max(tonumber(text), others)
  return newest and newest < LARGEST and newest or nil
end

-- Mints the tokens of a claim and returns the first: larger than all before and than the server's microseconds, so that
-- a server that lost its data continues above its earlier tokens. For the same reason only one token while the counter
-- is ahead.
local function mint(s, e)
  local last = newest_token(s)
  local first = math.max(last + 1, us)
  if first > us + LEAD then
    e.tokens = 1
  end
  local newest = first + e.tokens - 1
  call('SET', counter, int(newest), 'PX', int(math.floor(newest / 1000) - now + ENDED_LIFE))
  raise_foreign_token(s, newest)
  return first
end

-- Makes a claim a holder for `lasts` ms. `state` is '?' for a pushed grant, else ''.
local function grant(s, id, e, token, lasts, state)
  local c = s.c
  s.dirty = true
  c.newest, c.rest = token + e.tokens - 1, nil
  e.token, e.state, e.granted, e.prev = token, state, us, c.ended and c.ended.how or 'c'
  c.limit = e.limit
  if e.mode == 'x' then
    c.mode = 'x'
    c.holder = {
      id = id, token = token, tokens = e.tokens, since = us, prev = e.prev, owner = e.owner, state = state,
      channel = e.channel,
    }
    s.value = value_of(c.holder)
    write_lock(s, lasts)
  else
    local first = not c.mode
    if first then
      c.mode, c.count, c.used, c.nonce = e.mode, 0, 0, id
      call('DEL', s.holds) -- entries of holds without a record would be counted
      s.value = 'shared.' .. id
    end
    c.count, c.used = c.count + 1, c.used + e.count
    call('ZADD', s.holds, now + lasts, id)
    put(s, id, e)
    outlive(s.holds, lasts + ENDED_LIFE)
    outlive(s.entries, lasts + ENDED_LIFE)
    -- Last of all: if a step above fails, no lock is left behind.
    if first then
      write_lock(s, lasts)
    else
      prolong_lock(s, lasts)
    end
  end
end

-- How much longer the name is left to other programs, in ms; false if it is not: see leave_gap() in release.lua. A
-- longer time than any gap was written before the clock was set back.
local function gap_left(s)
  local left = (s.c.rest or 0) - now
  return left > 0 and left <= LONGEST_GAP and left
end

-- Sends a notification; false if no client listens, or this user may not send it.
local function notify(channel, words)
  local listeners = publish(channel, table.concat(words, ' '))
  return type(listeners) == 'number' and (listeners > 0 or all_may_listen())
end

-- False if the client of a claim is gone. The message is only a test: clients ignore it.
local function listens(e)
  local listeners = publish(e.channel, 'there')
  return type(listeners) ~= 'number' or listeners > 0 or all_may_listen()
end

-- Grants to the head of the queue as long as it fits, and pushes each grant to its client. While another program holds,
-- nothing is granted, but a head whose client is gone leaves the queue: it would not learn when the other program is
-- done.
local function settle(s)
  while s.c.mode ~= 'x' and not gap_left(s) do
    local id = call('ZRANGE', s.queue, 0, 0)[1]
    if not id then
      s.dirty = s.dirty or (s.c.limit and not s.c.mode)
      s.c.limit, s.c.run = s.c.mode and s.c.limit, s.c.mode and s.c.run
      return
    end
    local e = entry(s, id)
    local gone = e and is_foreign(s) and id ~= requester and not listens(e)
    if e and not gone and not (fits(s, e) and newest_token(s)) then
      return
    end
    call('ZREM', s.queue, id)
    if gone then
      silence(s, id, e)
    elseif e then
      local token = mint(s, e)
      if id == requester or notify(e.channel, {
        'granted', id, int(token), e.tokens, e.claim, int(us), s.c.ended and s.c.ended.how or 'c', s.lock,
      }) then
        if e.mode ~= 'x' then
          -- When its queue entry would have ended, in case the hold expires unconfirmed.
          e.till = tonumber(call('ZSCORE', s.entry_ends, id) or 0)
          call('ZREM', s.entry_ends, id)
        end
        grant(s, id, e, token, e.claim, '?')
      else
        silence(s, id, e) -- no client listens there: the next waiter
      end
    end
  end
end

-- How long the name stays taken without a request of its holder, in ms; -1: unknown.
local function frees_in(s)
  if s.c.mode and s.c.mode ~= 'x' then
    local first = call('ZRANGE', s.holds, 0, 0, 'WITHSCORES')[2]
    return first and math.max(0, tonumber(first) - now) or -1
  end
  return not s.value and gap_left(s) or math.max(-1, call('PTTL', s.lock))
end

-- Confirms the grant of a claim that sent a request: the hold lasts at least `ttl` ms from now.
local function confirm(s, id, ttl)
  local c = s.c
  if c.mode == 'x' then
    if c.holder.state == '?' then
      local lasts = math.max(ttl, call('PTTL', s.lock))
      c.holder.state, s.dirty = '', true
      s.value = value_of(c.holder)
      write_lock(s, lasts)
      call('HDEL', s.entries, id)
      call('ZREM', s.entry_ends, id)
    else
      prolong_lock(s, ttl)
    end
    return
  end
  local e = entry(s, id)
  if e.state == '?' then
    e.state = ''
    put(s, id, e)
  end
  if tonumber(call('ZSCORE', s.holds, id)) < now + ttl then
    call('ZADD', s.holds, now + ttl, id)
  end
  prolong_lock(s, ttl)
  outlive(s.holds, ttl + ENDED_LIFE)
  outlive(s.entries, ttl + ENDED_LIFE)
end

-- Runs a verb for each item of a batch that its fast path has not answered; an error of one item does not stop the
-- others.
local function each(one)
  for at = 1, ITEMS do
    if not answers[at + 1] then
      local done, reply = pcall(one, at)
      if not done then
        reply = type(reply) == 'table' and reply.err or tostring(reply)
      end
      answers[at + 1] = reply
    end
  end
  return answers
end

