-- The lock of a name as Redisson stores it: a hash. Comes between head.lua and name.lua, in place of lock_string.lua.
--
-- Each value that name.lua uses is one field, beside `mode`:
--   <uuid>:0<token>:write   1, 2 or 3   "<id>.<token>" and nothing, "?" or "!"; the id as a UUID
--   <nil uuid>:0<token>:write   1       "kept.<token>"
--   <uuid>:00:write             1       "shared.<id>" of permits
--   <uuid>:00                   1       "shared.<id>" of shared holds: one reader for Redisson, with a reader's key:
--                                       <timeout of the field>  STRING 1, lives as long as the longest of the holds
-- Redisson's fields are <uuid>:<thread>, or <uuid>:<thread>:write of a writer; no thread number of Redisson begins with
-- a zero. Every exclusive value is a writer, because a writer excludes every kind of Redisson's locks. Other keys of
-- Redisson that this file uses:
--   redisson_lock_queue:{<lock>}, redisson_lock_timeout:{<lock>}   waiters of a FairLock, and until when. Ours are one
--                                                                  entry there: OUR_ENTRY
--   redisson_lock_token:{<lock>}                                   the newest token of a FencedLock
local OWNER = '^(%x+)%-(%x+)%-(%x+)%-(%x+)%-(%x+):'
local NIL_ID = ('0'):rep(32)
local COUNTS = { [''] = '1', ['?'] = '2', ['!'] = '3' }
local STATES = { ['1'] = '', ['2'] = '?', ['3'] = '!' }
local MAX_FIELDS = 1024    -- of a hash with more fields, only our own field is read
local MAX_ENTRIES = 1024   -- the most entries of one owner whose keys are read, one key for each
local MAX_FAIR_QUEUE = 100 -- the most waiters of Redisson's own queue that are read
local OUR_ENTRY = '00000000-0000-0000-0000-000000000000:0' -- the one entry of all our claims in Redisson's queue
local FAIR_WAIT = 300000 -- by how much later than the waiter before it a waiter in Redisson's queue times out, in ms
local MAX_TIME_AS_HEAD = 15000 -- how long our entry may be the head there, in ms: many of our poll intervals

-- Builds the name of a key in the same way as Redisson's clients.
local function prefixed(what, lock)
  return lock:find('{', 1, true) and what .. ':' .. lock or what .. ':{' .. lock .. '}'
end

-- The key in which Redisson stores when an entry of a reader times out.
local function timeout_key(lock, owner, entry)
  return (lock:find('{', 1, true) and lock or '{' .. lock .. '}') .. ':' .. owner .. ':rwlock_timeout:' .. entry
end

-- The field that stores one of our values, and the content of that field.
local function field_of(value, mode)
  local function owner(id, number)
    local parts = { id:sub(1, 8), id:sub(9, 12), id:sub(13, 16), id:sub(17, 20), id:sub(21) }
    return table.concat(parts, '-') .. ':0' .. number
  end
  local kept_token, nonce = value:match('^kept%.(%d+)$'), value:match('^shared%.(%x+)$')
  if kept_token then
    return owner(NIL_ID, kept_token) .. ':write', '1'
  elseif nonce then
    return owner(nonce, '0') .. (mode == 's' and '' or ':write'), '1'
  end
  local id, token, state = value:match('^(%x+)%.(%d+)([?!]?)$')
  return owner(id, token) .. ':write', COUNTS[state]
end

-- The value of the lock that one of our fields stands for; nil for a foreign field.
local function value_in(field, count)
  local a, b, c, d, e, token, write = field:match(OWNER .. '0(%d+)(:?%l*)$')
  local id, state = a and a .. b .. c .. d .. e, STATES[count]
  if not id or #id ~= 32 or not state or write ~= ':write' and (write ~= '' or token ~= '0') then
    return nil
  elseif token == '0' or id == NIL_ID then
    return count == '1' and (token == '0' and 'shared.' .. id or 'kept.' .. token) or nil
  end
  return id .. '.' .. token .. state
end

-- Whether a field is of a reader, not of a writer.
local function is_reader(field)
  return not field:find(':write', -6, true)
end

-- Finds our value with the help of our record, if the hash has too many fields to read them all.
local function find_ours(name)
  local record = name.record
  local value = record.mode and (
    record.mode == 'x' and record.holder.id .. '.' .. int(record.holder.token) or 'shared.' .. (record.nonce or '')
  )
  if record.mode == 'x' and record.holder.state == 'kept' then
    value = 'kept.' .. int(record.holder.token)
  end
  local field = value and field_of(value, record.mode)
  local count = field and call('HGET', name.lock, field)
  if count then
    name.field, name.value = field, value_in(field, count)
  end
end

-- Reads the hash under the key: our value, name.value and name.field; other holders, name.others: 'r' if all are
-- readers of Redisson, 'x' otherwise; name.is_no_lock if it is no lock of Redisson.
local function find_fields(name)
  name.value, name.foreign_fields = false, {}
  local size = redis.pcall('HLEN', name.lock)
  if type(size) == 'table' then
    if not size.err:find('WRONGTYPE', 1, true) then
      call('HLEN', name.lock) -- raises the error
    end
    name.others, name.is_no_lock = 'x', true
    return
  elseif size > MAX_FIELDS then
    name.others = 'x'
    find_ours(name)
    return
  end
  local all = size > 0 and call('HGETALL', name.lock) or {}
  local mode, all_read, all_known = nil, true, true
  for i = 1, #all, 2 do
    local field, count = all[i], all[i + 1]
    local value = not name.value and value_in(field, count)
    if value then
      name.value, name.field = value, field
    elseif field == 'mode' then
      mode = count
    else
      local is_redissons = field:find(OWNER .. '%-?%d+$') or field:find(OWNER .. '%-?%d+:write$')
      all_known = all_known and is_redissons and count:find('^%d+$')
      all_read = all_read and is_reader(field)
      name.foreign_fields[#name.foreign_fields + 1] = { field, count }
    end
  end
  if #name.foreign_fields > 0 then
    name.others = mode == 'read' and all_read and all_known and 'r' or 'x'
    name.is_no_lock = not all_known
  elseif size > 0 and not name.value then
    name.others, name.is_no_lock = 'x', true -- the hash has only a mode
  end
end

-- The waiters of a FairLock that have not timed out: {owner, until when} each.
local function fair_queue(lock)
  local now_ms, waiting, timeouts = math.floor(now_us / 1000), {}, prefixed('redisson_lock_timeout', lock)
  for _, owner in ipairs(redis.pcall('LRANGE', prefixed('redisson_lock_queue', lock), 0, MAX_FAIR_QUEUE - 1)) do
    local ends_at = redis.pcall('ZSCORE', timeouts, owner)
    if type(ends_at) == 'string' and tonumber(ends_at) > now_ms then
      waiting[#waiting + 1] = { owner, tonumber(ends_at) }
    end
  end
  return waiting
end

-- Reads the value under the key, and the head of Redisson's own queue, name.fair_head, if it is not ours.
local function find_lock(name)
  find_fields(name)
  name.fair_queue = fair_queue(name.lock)
  local first = name.fair_queue[1]
  name.fair_head = first and first[1] ~= OUR_ENTRY and first[1]
end

-- Removes our entry from Redisson's queue. Each waiter behind our entry then times out earlier by FAIR_WAIT.
local function leave_fair_queue(name)
  local queue, timeouts = prefixed('redisson_lock_queue', name.lock), prefixed('redisson_lock_timeout', name.lock)
  local is_behind = false
  for _, waiter in ipairs(name.fair_queue) do
    if is_behind then
      call('ZINCRBY', timeouts, -FAIR_WAIT, waiter[1])
    end
    is_behind = is_behind or waiter[1] == OUR_ENTRY
  end
  call('LREM', queue, 1, OUR_ENTRY)
  call('ZREM', timeouts, OUR_ENTRY)
end

-- Puts our entry at the end of Redisson's queue, if others wait there. If our entry is there already, extends its time.
local function enter_fair_queue(name)
  local queue, timeouts = prefixed('redisson_lock_queue', name.lock), prefixed('redisson_lock_timeout', name.lock)
  -- When the waiter before the present one times out.
  local now_ms, previous_end = math.floor(now_us / 1000), nil
  for i, waiter in ipairs(name.fair_queue) do
    if waiter[1] == OUR_ENTRY then
      call('ZADD', timeouts, int(previous_end and previous_end + FAIR_WAIT or now_ms + MAX_TIME_AS_HEAD), OUR_ENTRY)
      return
    end
    previous_end = waiter[2]
  end
  if previous_end then
    call('LREM', queue, 1, OUR_ENTRY) -- our entry, if it had timed out
    call('ZADD', timeouts, int(previous_end + FAIR_WAIT), OUR_ENTRY)
    call('RPUSH', queue, OUR_ENTRY)
  end
end

-- Called by save(). Keeps our entry in Redisson's queue while claims of ours wait. After each grant to one of them,
-- moves our entry to the end of that queue.
local function update_others(name)
  local is_queued = false
  for _, waiter in ipairs(name.fair_queue) do
    is_queued = is_queued or waiter[1] == OUR_ENTRY
  end
  local has_waiters = call('EXISTS', name.queue) == 1
  if is_queued and (name.was_granted or not has_waiters) then
    leave_fair_queue(name)
    name.fair_queue = fair_queue(name.lock)
  end
  if has_waiters then
    enter_fair_queue(name)
  end
end

-- For how long from now Redisson's readers in the hash hold the lock, in ms; nil if that is unknown.
local function last_foreign_reader(name)
  if name.others ~= 'r' then
    return nil
  end
  local longest = 0
  for _, foreign in ipairs(name.foreign_fields) do
    local owner, count = foreign[1], tonumber(foreign[2])
    if count > MAX_ENTRIES then
      return nil
    end
    for entry = 1, count do
      local remaining = call('PTTL', timeout_key(name.lock, owner, entry))
      if remaining == -1 then
        return nil
      end
      longest = math.max(longest, remaining)
    end
  end
  return longest
end

-- Writes name.value for `ms`; without `ms` the expiry does not change.
local function write_lock(name, ms)
  local field, count = field_of(name.value, name.record.mode)
  local remaining = name.others and call('PTTL', name.lock) or 0
  local life = ms and remaining ~= -1 and int(math.max(remaining, ms))
  if ms and is_reader(field) then
    call('SET', timeout_key(name.lock, field, 1), '1', 'PX', int(ms))
  end
  if life then
    call('PEXPIRE', name.lock, life) -- before HSET, too: without this right, no lock without an expiry is left
  end
  if name.field and name.field ~= field then
    call('HDEL', name.lock, name.field)
  end
  name.was_granted = name.was_granted or name.field ~= field
  name.field = field
  call('HSET', name.lock, 'mode', is_reader(field) and 'read' or 'write', field, count)
  if life then
    call('PEXPIRE', name.lock, life)
  end
end

-- Removes our value. Without other holders the key is deleted. If readers of Redisson remain, the lifetime of the key
-- is shortened to theirs, as Redisson does.
local function drop_lock(name)
  if name.field then
    call('HDEL', name.lock, name.field)
    if is_reader(name.field) then
      call('DEL', timeout_key(name.lock, name.field, 1))
    end
  end
  local longest = last_foreign_reader(name)
  if not name.others or longest == 0 then
    call('DEL', name.lock)
    name.others = nil
  elseif longest then
    call('PEXPIRE', name.lock, int(longest))
  end
  name.value, name.field = false, nil
end

-- Extends the lock to at least `ms`. If another program removed the expiry of a lock of shared holds, the lock lasts as
-- long as the longest of our holds and of Redisson's readers. If the time of these readers is unknown, the lock stays
-- without an expiry.
local function prolong_lock(name, ms)
  local longest = ms
  if name.record.mode ~= 'x' and call('PTTL', name.lock) == -1 then
    ms = math.max(ms, last_end(name.holds) - math.floor(now_us / 1000))
    local readers = name.others and last_foreign_reader(name) or not name.others and 0
    longest = readers and math.max(ms, readers)
  end
  if longest then
    prolong(name.lock, longest)
  end
  if is_reader(name.field) then
    local timeout = timeout_key(name.lock, name.field, 1)
    call('SET', timeout, '1', 'PX', int(math.max(ms, call('PTTL', timeout))))
  end
end

-- For how long an exclusive hold would last without its renewal, in ms; -1: for ever. nil for shared holds: readers of
-- Redisson change the time of the hash that they share with ours.
local function time_left(name)
  return name.record.mode == 'x' and call('PTTL', name.lock)
end

-- Sets the remaining time of a lock that exists. The time is longer if readers of Redisson in the same hash need it.
local function shorten_lock(name, ms)
  if is_reader(name.field) then
    call('PEXPIRE', timeout_key(name.lock, name.field, 1), ms)
  end
  local longest = last_foreign_reader(name)
  if not name.others or longest then
    call('PEXPIRE', name.lock, int(math.max(tonumber(ms), longest or 0)))
  end
end

-- True if a foreign lock is under the key.
local function is_foreign(name)
  return name.others or name.value and not name.record.mode
end

-- True if a foreign holder or value has replaced our hold. Readers of Redisson may hold beside ours.
local function is_overwritten(name)
  return not name.value and name.others == 'x'
end

-- True if something foreign is in the way of a claim: a holder (except readers of Redisson, for a shared claim), or the
-- head of Redisson's queue.
local function is_blocked(name, entry)
  if name.fair_head or name.value and not name.record.mode then
    return true
  end
  return name.others and not (name.others == 'r' and entry.mode == 's')
end

-- Whether clients of Redisson may wait outside of every queue: 'listens' if one listens for the end of the lock, and so
-- would acquire the lock at once; true if one was seen in the last minutes.
local function others_may_wait(name, wake_words)
  local lock_channel = prefixed('redisson_lock__channel', name.lock)
  local rw_channel = prefixed('redisson_rwlock', name.lock)
  for _, subcommand in ipairs(wake_words == 'redisson s' and { 'NUMSUB', 'SHARDNUMSUB' } or { 'NUMSUB' }) do
    local counts = redis.pcall('PUBSUB', subcommand, lock_channel, rw_channel)
    if not counts.err and counts[2] + counts[4] > 0 then
      return 'listens'
    end
  end
  return name.fair_head or call('EXISTS', name.side .. 's' .. name.lock) == 1
end

-- True if the value under the key is one of our locks in the other layout: see lock_string.lua.
local function is_other_layout(name)
  local text = name.is_no_lock and string_at(name.lock, redis.pcall)
  return type(text) == 'string' and has_our_form(text) and true
end

-- Foreign holders, in the form of the answer of look.lua; `is_ours`: our field in the hash is one of our holds.
local function foreign_holders(name, is_ours)
  local rows, remaining = {}, call('PTTL', name.lock)
  if name.is_no_lock then
    local text, kind = string_at(name.lock, redis.pcall), redis.pcall('TYPE', name.lock)
    local shown = type(text) == 'string' and text or '(' .. (kind.ok or 'unknown') .. ')'
    local owner = is_other_layout(name) and 'leasehold without layout=redisson' or 'another program'
    return { { shown, 'x', remaining, owner } }
  elseif name.others and #name.foreign_fields == 0 then
    return { { '(hash)', 'x', remaining, 'another program' } }
  end
  for _, foreign in ipairs(name.foreign_fields) do
    local field, count, row_remaining = foreign[1], tonumber(foreign[2]), remaining
    if name.others == 'r' then
      -- The remaining time of this reader, if it entered only once. For other readers, the remaining time of the lock
      -- is shown, which is the longest of all readers.
      local own_remaining = count == 1 and call('PTTL', timeout_key(name.lock, field, 1)) or remaining
      row_remaining = own_remaining >= 0 and own_remaining or remaining
    end
    local owner = count > 1 and 'Redisson, entered ' .. int(count) .. ' times' or 'Redisson'
    rows[#rows + 1] = { field:gsub(':write$', ''), name.others == 'r' and 's' or 'x', row_remaining, owner }
  end
  if name.value and not is_ours then
    rows[#rows + 1] = { name.field, is_reader(name.field) and 's' or 'x', remaining, 'leasehold' }
  end
  return rows
end

-- Foreign waiters, from Redisson's queue, in the form of the answer of look.lua.
local function foreign_waiters(name)
  local owners = {}
  for _, waiter in ipairs(name.fair_queue) do
    owners[#owners + 1] = waiter[1] ~= OUR_ENTRY and waiter[1] or nil
  end
  return owners
end

-- The newest token of Redisson's FencedLock of this name: 0 if there is no such lock; nil if its key has a value that
-- is no token.
local function newest_foreign_token(name)
  local text = string_at(prefixed('redisson_lock_token', name.lock), redis.pcall)
  if not text then
    return 0
  end
  return type(text) == 'string' and text:match('^%d+$') and tonumber(text) or nil
end

-- If Redisson has a FencedLock of this name, raises its newest token to ours, so that its later tokens are larger than
-- ours.
local function raise_foreign_token(name, newest)
  local token = prefixed('redisson_lock_token', name.lock)
  if call('EXISTS', token) == 1 then
    call('SET', token, int(newest), 'KEEPTTL')
  end
end
