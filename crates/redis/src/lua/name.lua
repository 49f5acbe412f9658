-- One name on the server: its holders, its queue, and how the last hold ended. Comes before the file of each request.
--
-- In all files: `name` is a name as load() reads it: its keys, name.value (the value of the lock) and name.record;
-- `entry` is an entry of <side>e, `holder` the exclusive holder in the record or the entry of a shared hold; `now_us`
-- and `now_ms` are the server's time, `id` is the id of a claim. Fields of a record:
--   ended      how the last hold ended: .how is the letter, .upto the newest token to which it applies, .till until
--              when it is remembered, in server ms
--   run, rest  since when the name has passed from one of our claims to the next; until when it is left to other
--              programs; both in server ms
--   nonce      the id in "shared.<id>"
--   relied     holds of ours whose value another program replaced: .till until when a client may rely on one of them,
--              in server ms; .id the claim of this hold, if the hold was exclusive
-- The state of a holder: '' confirmed, '?' a pushed grant without confirmation, '!' broken, 'kept' no holder: a minimum
-- hold time. The state of a waiter: 'waiting', or 'silent' (it missed its grant). entry.claim is the claim time in ms.
--
-- The algorithm is the pure machine in crates/core/src/pure/lock_state; this is its storage. Keys of a name, all in one
-- slot (<side> is "leasehold:{tag}", the tag chosen by the slot of the lock key):
--   <lock>           exclusive: "<id>.<token>", then "?" while a pushed grant is unconfirmed or "!" once broken;
--                            "kept.<token>" during a minimum hold time; "shared.<id>" beside shared holds and permits.
--                            Expires with the hold. Anything else, of any type, is a foreign lock: never changed,
--                            but see stale.lua.
--                            A STRING with lock_string.lua before this file, a HASH with lock_redisson.lua.
--   <side>c<lock>    STRING  the record: layout version, kind, exclusive holder, how the last hold ended. Exists
--                            while a claim holds or waits (msgpack, or words: head.lua).
--   <side>q<lock>    ZSET    the queue: claim id by order of arrival
--   <side>e<lock>    HASH    claim id -> entry of a waiter, a shared holder or a permit (msgpack, or words)
--   <side>z<lock>    ZSET    claim id of each waiter -> when its entry ends, in server ms
--   <side>h<lock>    ZSET    claim id of each shared holder or permit -> when its hold ends, in server ms
--   <side>d<lock>    ZSET    tombstones: no request of these claims may create anything; claim id -> end, in server ms
--   <side>s<lock>    STRING  another program was seen under the lock in the last minutes
--   <side>m<lock>    STRING  the memo: see memo.lua. It outlives the hold under which it was written
--   <side>o<lock>    ZSET    the clients that follow the memo: see memo_followers.lua
-- and for all names of a prefix together
--   <counter>        STRING  the newest token; expires an hour after the time that it equals in microseconds
--
-- Invariant: only settle() grants to waiters, or hand_over() in release_quick.lua where settle() would do the same;
-- every script that may have freed the name runs one of them. Only the server's clock decides what has expired. Only
-- new claims may be refused for lack of memory: after its first write, no write of a script is refused for that.
--
-- KEYS[1] is the counter in every script (in a cluster, that of the slot); then come the locks. In a cluster the other
-- keys of each name follow, all that the script can use: a server that has only some of these keys refuses the script.

local REQUEST_LIFE = 10000   -- how long a request may still arrive after its claim was ended, in ms
local MAX_HOLDERS = 16384
local PRUNED_AT_ONCE = 1000  -- how many expired entries one step removes at most
local SEEN_LIFE = 300000     -- how long a foreign lock is remembered, in ms
local SEVERITY = { c = 0, u = 1, a = 2, l = 3, b = 4 } -- clean, unknown, abandoned, lapsed, broken

local counter = KEYS[1]
local now_ms = math.floor(now_us / 1000)
local requester -- the claim of this request: it gets an answer, and so no notification

-- Reads a name; nil if its record is of another version.
local function load(lock, side)
  local name = {
    lock = lock, side = side, record_key = side .. 'c' .. lock, queue = side .. 'q' .. lock,
    entries = side .. 'e' .. lock, entry_ends = side .. 'z' .. lock, holds = side .. 'h' .. lock,
    tombstones = side .. 'd' .. lock,
  }
  local record_text = string_at(name.record_key, call)
  name.record = record_text and read_record(record_text) or { v = VERSION }
  if name.record.v ~= VERSION then
    return nil
  end
  find_lock(name)
  name.has_record = record_text and true
  if name.value and not name.record.mode then
    -- One of our holds whose record is missing: the value of the lock alone counts as the hold.
    local id, token, state = name.value:match('^(%x+)%.(%d+)([?!]?)$')
    if id and #id == 32 then
      name.record.mode, name.record.limit, name.dirty = 'x', 0, true
      name.record.holder = {
        id = id, token = tonumber(token), tokens = 1, since = now_us, prev = 'u', owner = '', state = state,
      }
      name.record.newest = name.record.holder.token
    end
  end
  return name
end

-- The value of the lock for this exclusive holder.
local function value_of(holder)
  if holder.state == 'kept' then
    return 'kept.' .. int(holder.token)
  end
  return holder.id .. '.' .. int(holder.token) .. holder.state
end

-- Remembers for some minutes that another program uses the lock, so that the name gets gaps: see leave_gap() in
-- release.lua.
local function note_foreign(name)
  local seen = name.side .. 's' .. name.lock
  if call('PTTL', seen) < SEEN_LIFE / 2 then
    call('SET', seen, '1', 'PX', SEEN_LIFE)
  end
end

-- Whether a claim waits for the name.
local function has_queue(name)
  return call('EXISTS', name.queue) == 1
end

-- Writes the record if it changed (name.dirty), or removes it if it is no longer needed. The hold in it lasts for
-- `hold_ms` or longer. The expiry of an unchanged record is extended, so that the record lives longer than its holds.
local function save(name, hold_ms)
  update_others(name)
  local record, life = name.record, 0
  if not name.dirty then
    if record.mode then
      local longest_ms = math.max(hold_ms or 0, call('PTTL', name.lock))
      if call('PTTL', name.record_key) < longest_ms + ENDED_LIFE - RECORD_SLACK then
        call('PEXPIRE', name.record_key, longest_ms + ENDED_LIFE)
      end
    elseif name.has_record and call('PTTL', name.record_key) < MIN_QUEUE_LIFE and has_queue(name) then
      call('PEXPIRE', name.record_key, QUEUE_LIFE)
    end
    return
  elseif record.mode then
    life = math.max(hold_ms or 0, lock_life(name)) + ENDED_LIFE
  elseif has_queue(name) then
    life = QUEUE_LIFE
  else
    record.limit = nil
  end
  if record.ended then
    life = math.max(life, record.ended.till - now_ms)
  end
  if record.relied then
    life = math.max(life, record.relied.till - now_ms)
  end
  if life > 0 then
    call('SET', name.record_key, in_words(record) or cmsgpack.pack(record), 'PX', life)
  elseif name.has_record then
    call('DEL', name.record_key)
  end
end

-- The first write of a script that must not fail for lack of memory: this write changes nothing, and after it the
-- server refuses none of the script's writes.
local function begin_writes(name)
  call('HDEL', name.entries, '')
end

-- Stores a tombstone for a claim that ended, and removes the tombstones whose time is over.
local function add_tombstone(name, id)
  for _, expired in ipairs(call('ZRANGEBYSCORE', name.tombstones, '-inf', now_ms, 'LIMIT', 0, PRUNED_AT_ONCE)) do
    call('ZREM', name.tombstones, expired)
  end
  call('ZADD', name.tombstones, now_ms + REQUEST_LIFE, id)
  outlive(name.tombstones, REQUEST_LIFE)
end

-- Whether a claim has ended: then a late request must not revive it.
local function has_tombstone(name, id)
  local ends_at = call('ZSCORE', name.tombstones, id)
  return ends_at and tonumber(ends_at) > now_ms
end

-- Remembers how a hold ended (a letter of SEVERITY), for the next grant; of concurrent holds the worst end counts.
local function note_end(name, token, end_letter)
  local record = name.record
  name.dirty = true
  local is_concurrent = record.ended and token <= record.ended.upto
  if is_concurrent and SEVERITY[record.ended.how] > SEVERITY[end_letter] then
    end_letter = record.ended.how
  end
  if end_letter == 'c' then
    record.ended = nil
  else
    record.ended = { how = end_letter, upto = record.newest or token, till = now_ms + ENDED_LIFE }
  end
end

-- Removes a claim that missed its grant from the queue. Its entry stays until the next request of the claim, or until
-- the entry's own end.
local function silence(name, id, entry)
  entry.state, entry.token = 'silent', nil
  local ends_at = entry.till or tonumber(call('ZSCORE', name.entry_ends, id) or 0)
  if ends_at > now_ms then
    entry.till = nil
    write_entry(name, id, entry)
    call('ZADD', name.entry_ends, ends_at, id)
    outlive(name.entries, QUEUE_LIFE)
    outlive(name.entry_ends, QUEUE_LIFE)
  else
    call('HDEL', name.entries, id)
    call('ZREM', name.entry_ends, id)
  end
end

-- Records the end of a hold that expired; `entry`: its entry, if it has one.
local function lapse(name, id, holder, entry)
  if holder.state == 'kept' then
    return
  end
  note_end(name, holder.token, holder.state == '!' and 'b' or 'l')
  if holder.state == '?' then
    -- The client may have received the grant and worked until the deadline, so the next holder learns that a hold
    -- lapsed. The claim can ask again.
    if entry then
      silence(name, id, entry)
    end
  else
    add_tombstone(name, id)
  end
end

-- Removes a shared holder or a permit.
local function remove_holder(name, id, entry)
  name.dirty = true
  call('ZREM', name.holds, id)
  call('HDEL', name.entries, id)
  name.record.count = name.record.count - 1
  name.record.used = name.record.used - entry.count
end

-- Shortens the lifetime of the lock "shared.<id>" (the sentinel) to the longest remaining hold, after holders are gone.
-- The time counts from `now_ms`, not from the clock: before Redis 7.2 the clock goes on while a script runs, and an
-- expired key vanishes at once, also during the script, although the next holders depend on the key.
local function shrink_sentinel(name)
  name.dirty = true
  local longest = call('ZREVRANGE', name.holds, 0, 0, 'WITHSCORES')[2]
  local is_intact = name.value == 'shared.' .. name.record.nonce
  if longest and is_intact then
    shorten_lock(name, int(longest - now_ms))
    return
  end
  if is_intact then
    drop_lock(name)
  end
  name.record.mode = nil
end

-- Removes what has expired.
local function prune(name)
  local record = name.record
  forget_replaced(name)
  if record.mode == 'x' then
    local holder = record.holder
    if name.value ~= value_of(holder) then
      if name.value then
        note_replaced(name)
      end
      record.mode, record.holder, name.dirty = nil, nil, true
      lapse(name, holder.id, holder, holder.state == '?' and read_entry(name, holder.id))
    end
  elseif record.mode then
    -- Without the sentinel another program may have acquired the lock: no hold that depended on the sentinel is valid.
    local is_intact = name.value == 'shared.' .. record.nonce
    local last_end = is_intact and now_ms or '+inf'
    if name.value and not is_intact then
      note_replaced(name)
    end
    for _, id in ipairs(call('ZRANGEBYSCORE', name.holds, '-inf', last_end)) do
      local entry = read_entry(name, id) or { state = 'kept', count = 0 }
      remove_holder(name, id, entry)
      lapse(name, id, entry, entry)
    end
    if call('EXISTS', name.holds) == 0 then
      shrink_sentinel(name)
    end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', name.entry_ends, '-inf', now_ms, 'LIMIT', 0, PRUNED_AT_ONCE)) do
    name.dirty = true
    call('ZREM', name.entry_ends, id)
    call('ZREM', name.queue, id)
    call('HDEL', name.entries, id)
  end
end

-- Whether the claim of this entry can be granted beside the present holders.
local function fits(name, entry)
  local record = name.record
  if is_blocked(name, entry) then
    return false
  elseif entry.mode == 'x' then
    return not record.mode
  elseif not record.mode then
    return true
  end
  return record.mode == entry.mode and record.count < MAX_HOLDERS
    and (entry.mode == 's' or record.used + entry.count <= entry.limit)
end

-- The newest token. nil if its key has a foreign value, or a number so large that adding to it would round: then
-- nothing is granted, and the claim gets an error.
local function newest_token(name)
  local text, others = string_at(counter, redis.pcall) or '0', newest_foreign_token(name)
  local newest = others and type(text) == 'string' and text:match('^%d+$') and math.max(tonumber(text), others)
  return newest and newest < MAX_TOKEN and newest or nil
end

-- Mints the tokens of a claim and returns the first one. It is larger than all earlier tokens and not smaller than the
-- server's microseconds, so that a server that lost its data continues above its earlier tokens. For the same reason
-- the claim gets only one token while the counter is ahead of the clock.
local function mint(name, entry)
  local last = newest_token(name)
  local first = math.max(last + 1, now_us)
  if first > now_us + MAX_LEAD then
    entry.tokens = 1
  end
  local newest = first + entry.tokens - 1
  call('SET', counter, int(newest), 'PX', int(math.floor(newest / 1000) - now_ms + ENDED_LIFE))
  raise_foreign_token(name, newest)
  return first
end

-- Makes a claim a holder for `hold_ms`. `state` is '?' for a pushed grant, else ''.
local function grant(name, id, entry, token, hold_ms, state)
  local record = name.record
  name.dirty = true
  record.newest, record.rest = token + entry.tokens - 1, nil
  entry.token, entry.state, entry.granted, entry.prev = token, state, now_us, record.ended and record.ended.how or 'c'
  record.limit = entry.limit
  if entry.mode == 'x' then
    record.mode = 'x'
    record.holder = {
      id = id, token = token, tokens = entry.tokens, since = now_us, prev = entry.prev, owner = entry.owner,
      state = state, channel = entry.channel,
    }
    name.value = value_of(record.holder)
    write_lock(name, hold_ms)
  else
    local is_first = not record.mode
    if is_first then
      record.mode, record.count, record.used, record.nonce = entry.mode, 0, 0, id
      call('DEL', name.holds) -- entries of holds without a record would be counted
      name.value = 'shared.' .. id
    end
    record.count, record.used = record.count + 1, record.used + entry.count
    call('ZADD', name.holds, now_ms + hold_ms, id)
    write_entry(name, id, entry)
    outlive(name.holds, hold_ms + ENDED_LIFE)
    outlive(name.entries, hold_ms + ENDED_LIFE)
    -- The lock is written last: if a step above fails, no lock is left behind.
    if is_first then
      write_lock(name, hold_ms)
    else
      prolong_lock(name, hold_ms)
    end
  end
end

-- For how long from now the name is left to other programs (a gap), in ms; false if there is no gap: see leave_gap() in
-- release.lua. A time that is longer than any gap was written before the clock was set back, and does not count.
local function gap_left(name)
  local gap_ms = (name.record.rest or 0) - now_ms
  return gap_ms > 0 and gap_ms <= MAX_GAP and gap_ms
end

-- Sends a notification; false if no client listens, or this user has no right to send it.
local function notify(channel, words)
  local listeners = publish(channel, table.concat(words, ' '))
  return type(listeners) == 'number' and (listeners > 0 or all_may_listen())
end

-- False if the client of a claim is gone. Clients ignore this message: it only shows whether one listens.
local function listens(entry)
  local listeners = publish(entry.channel, 'there')
  return type(listeners) ~= 'number' or listeners > 0 or all_may_listen()
end

-- Grants the name to the head of the queue, again and again as long as the head fits, and pushes each grant to its
-- client. While another program holds the lock, nothing is granted. But a head whose client is gone leaves the queue:
-- it would not learn when the lock is free.
local function settle(name)
  while name.record.mode ~= 'x' and not gap_left(name) do
    local id = call('ZRANGE', name.queue, 0, 0)[1]
    if not id then
      name.dirty = name.dirty or (name.record.limit and not name.record.mode)
      name.record.limit, name.record.run = name.record.mode and name.record.limit, name.record.mode and name.record.run
      return
    end
    local entry = read_entry(name, id)
    local is_gone = entry and is_foreign(name) and id ~= requester and not listens(entry)
    if entry and not is_gone and not (fits(name, entry) and newest_token(name)) then
      return
    end
    call('ZREM', name.queue, id)
    if is_gone then
      silence(name, id, entry)
    elseif entry then
      local token = mint(name, entry)
      if id == requester or notify(entry.channel, {
        'granted', id, int(token), entry.tokens, entry.claim, int(now_us),
        name.record.ended and name.record.ended.how or 'c', name.lock,
      }) then
        if entry.mode ~= 'x' then
          -- Keeps the time at which the queue entry would have ended, in case the hold expires unconfirmed.
          entry.till = tonumber(call('ZSCORE', name.entry_ends, id) or 0)
          call('ZREM', name.entry_ends, id)
        end
        grant(name, id, entry, token, entry.claim, '?')
      else
        silence(name, id, entry) -- no client listens to it: try the next waiter
      end
    end
  end
end

-- How long the name stays taken if its holder sends no further request, in ms; -1: unknown.
local function frees_in(name)
  if name.record.mode and name.record.mode ~= 'x' then
    local first_end = call('ZRANGE', name.holds, 0, 0, 'WITHSCORES')[2]
    return first_end and math.max(0, tonumber(first_end) - now_ms) or -1
  end
  return not name.value and gap_left(name) or math.max(-1, call('PTTL', name.lock))
end

-- Confirms the grant of a claim that sent a request: from now on, the hold lasts for `ttl` ms or longer.
local function confirm(name, id, ttl)
  local record = name.record
  if record.mode == 'x' then
    if record.holder.state == '?' then
      local hold_ms = math.max(ttl, call('PTTL', name.lock))
      record.holder.state, name.dirty = '', true
      name.value = value_of(record.holder)
      write_lock(name, hold_ms)
      call('HDEL', name.entries, id)
      call('ZREM', name.entry_ends, id)
    else
      prolong_lock(name, ttl)
    end
    return
  end
  local entry = read_entry(name, id)
  if entry.state == '?' then
    entry.state = ''
    write_entry(name, id, entry)
  end
  if tonumber(call('ZSCORE', name.holds, id)) < now_ms + ttl then
    call('ZADD', name.holds, now_ms + ttl, id)
  end
  prolong_lock(name, ttl)
  outlive(name.holds, ttl + ENDED_LIFE)
  outlive(name.entries, ttl + ENDED_LIFE)
end

-- Answers each item of a batch that the fast path of the script has not answered: calls `answer_item` with the number
-- of the item. An error of one item does not stop the other items.
local function answer_items(answer_item)
  for i = 1, ITEM_COUNT do
    if not answers[i + 1] then
      local done, reply = pcall(answer_item, i)
      if not done then
        reply = type(reply) == 'table' and reply.err or tostring(reply)
      end
      answers[i + 1] = reply
    end
  end
  return answers
end

