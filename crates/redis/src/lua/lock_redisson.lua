-- The lock of a name as Redisson stores it: a hash. Comes between head.lua and name.lua, in place of lock_string.lua.
--
-- Each value that name.lua uses is one field, beside `mode`:
--   <uuid>:0<token>:write   1, 2 or 3   "<id>.<token>" and nothing, "?" or "!"; the id as a UUID
--   <nil uuid>:0<token>:write   1       "kept.<token>"
--   <uuid>:00:write             1       "shared.<id>" of permits
--   <uuid>:00                   1       "shared.<id>" of shared holds: one reader for Redisson, with a reader's key:
--                                       <timeout of the field>  STRING 1, lives as long as the longest of the holds
-- Redisson's fields are <uuid>:<thread>, or <uuid>:<thread>:write of a writer; no thread number begins with a zero.
-- Every exclusive value is a writer, because a writer excludes every kind of Redisson's locks. Other keys of
-- Redisson in use:
--   redisson_lock_queue:{<lock>}, redisson_lock_timeout:{<lock>}   waiters of a FairLock, and until when. Ours are one
--                                                                  entry there: OURS
--   redisson_lock_token:{<lock>}                                   the newest token of a FencedLock
local OWNER = '^(%x+)%-(%x+)%-(%x+)%-(%x+)%-(%x+):'
local NIL_ID = ('0'):rep(32)
local COUNTS = { [''] = '1', ['?'] = '2', ['!'] = '3' }
local STATES = { ['1'] = '', ['2'] = '?', ['3'] = '!' }
local MAX_FIELDS = 1024    -- of a hash with more fields, only our field is read
local MAX_ENTRIES = 1024   -- the most entries of one owner whose keys are read, one key for each
local MAX_FAIR_QUEUE = 100 -- no more of Redisson's own queue is read
local OURS = '00000000-0000-0000-0000-000000000000:0' -- the one entry of all our claims in Redisson's queue
local FAIR_LIFE = 300000   -- the wait that each waiter there expects after the one before, in ms
local HEAD_LIFE = 15000    -- how long our entry may be the head, in ms: many poll intervals of our first waiter

-- Builds the name of a key as Redisson's clients do.
local function prefixed(what, lock)
  return lock:find('{', 1, true) and what .. ':' .. lock or what .. ':{' .. lock .. '}'
end

local function timeout_key(lock, owner, entry)
  return (lock:find('{', 1, true) and lock or '{' .. lock .. '}') .. ':' .. owner .. ':rwlock_timeout:' .. entry
end

-- The field for one of our values, and its content.
local function field_of(value, mode)
  local function owner(id, number)
    local parts = { id:sub(1, 8), id:sub(9, 12), id:sub(13, 16), id:sub(17, 20), id:sub(21) }
    return table.concat(parts, '-') .. ':0' .. number
  end
  local blocked, nonce = value:match('^kept%.(%d+)$'), value:match('^shared%.(%x+)$')
  if blocked then
    return owner(NIL_ID, blocked) .. ':write', '1'
  elseif nonce then
    return owner(nonce, '0') .. (mode == 's' and '' or ':write'), '1'
  end
  local id, token, state = value:match('^(%x+)%.(%d+)([?!]?)$')
  return owner(id, token) .. ':write', COUNTS[state]
end

-- The value that one of our fields stands for; nil for a foreign field.
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

local function is_reader(field)
  return not field:find(':write', -6, true)
end

-- Finds our value by our record, where the hash has too many fields to read.
local function find_ours(s)
  local c = s.c
  local value = c.mode and (c.mode == 'x' and c.holder.id .. '.' .. int(c.holder.token) or 'shared.' .. (c.nonce or ''))
  if c.mode == 'x' and c.holder.state == 'kept' then
    value = 'kept.' .. int(c.holder.token)
  end
  local field = value and field_of(value, c.mode)
  local count = field and call('HGET', s.lock, field)
  if count then
    s.field, s.value = field, value_in(field, count)
  end
end

-- Reads the hash under the key: our value, s.value and s.field; other holders, s.others: 'r' if all are readers of
-- Redisson, 'x' otherwise; s.typed if it is no lock of Redisson.
local function find_fields(s)
  s.value, s.foreign_fields = false, {}
  local size = redis.pcall('HLEN', s.lock)
  if type(size) == 'table' then
    if not size.err:find('WRONGTYPE', 1, true) then
      call('HLEN', s.lock) -- fails as before
    end
    s.others, s.typed = 'x', true
    return
  elseif size > MAX_FIELDS then
    s.others = 'x'
    find_ours(s)
    return
  end
  local all = size > 0 and call('HGETALL', s.lock) or {}
  local mode, reads, known = nil, true, true
  for at = 1, #all, 2 do
    local field, count = all[at], all[at + 1]
    local value = not s.value and value_in(field, count)
    if value then
      s.value, s.field = value, field
    elseif field == 'mode' then
      mode = count
    else
      local owned = field:find(OWNER .. '%-?%d+$') or field:find(OWNER .. '%-?%d+:write$')
      known = known and owned and count:find('^%d+$')
      reads = reads and is_reader(field)
      s.foreign_fields[#s.foreign_fields + 1] = { field, count }
    end
  end
  if #s.foreign_fields > 0 then
    s.others = mode == 'read' and reads and known and 'r' or 'x'
    s.typed = not known
  elseif size > 0 and not s.value then
    s.others, s.typed = 'x', true -- only a mode
  end
end

-- The waiters of a FairLock whose time has not ended: {owner, until when} each.
local function fair_queue(lock)
  local now, waiting, till = math.floor(us / 1000), {}, prefixed('redisson_lock_timeout', lock)
  for _, owner in ipairs(redis.pcall('LRANGE', prefixed('redisson_lock_queue', lock), 0, MAX_FAIR_QUEUE - 1)) do
    local over = redis.pcall('ZSCORE', till, owner)
    if type(over) == 'string' and tonumber(over) > now then
      waiting[#waiting + 1] = { owner, tonumber(over) }
    end
  end
  return waiting
end

-- Reads the value under the key, and the head of Redisson's own queue, s.fair, if it is not ours.
local function find_lock(s)
  find_fields(s)
  s.fair_queue = fair_queue(s.lock)
  local first = s.fair_queue[1]
  s.fair = first and first[1] ~= OURS and first[1]
end

-- Removes our entry from Redisson's queue. Each waiter behind it expects a wait that is shorter by
-- FAIR_LIFE.
local function leave_fair_queue(s)
  local queue, till = prefixed('redisson_lock_queue', s.lock), prefixed('redisson_lock_timeout', s.lock)
  local behind = false
  for _, waiter in ipairs(s.fair_queue) do
    if behind then
      call('ZINCRBY', till, -FAIR_LIFE, waiter[1])
    end
    behind = behind or waiter[1] == OURS
  end
  call('LREM', queue, 1, OURS)
  call('ZREM', till, OURS)
end

-- Enters Redisson's queue at its end, while others wait there; or renews our entry.
local function enter_fair_queue(s)
  local queue, till = prefixed('redisson_lock_queue', s.lock), prefixed('redisson_lock_timeout', s.lock)
  local now, before = math.floor(us / 1000), nil
  for at, waiter in ipairs(s.fair_queue) do
    if waiter[1] == OURS then
      call('ZADD', till, int(before and before + FAIR_LIFE or now + HEAD_LIFE), OURS)
      return
    end
    before = waiter[2]
  end
  if before then
    call('LREM', queue, 1, OURS) -- an entry whose time had ended
    call('ZADD', till, int(before + FAIR_LIFE), OURS)
    call('RPUSH', queue, OURS)
  end
end

-- Called after each verb. Keeps our entry in Redisson's queue while our claims wait; after each grant to us, moves our
-- entry to the end of that queue.
local function update_others(s)
  local is_queued = false
  for _, waiter in ipairs(s.fair_queue) do
    is_queued = is_queued or waiter[1] == OURS
  end
  local wait = call('EXISTS', s.queue) == 1
  if is_queued and (s.took or not wait) then
    leave_fair_queue(s)
    s.fair_queue = fair_queue(s.lock)
  end
  if wait then
    enter_fair_queue(s)
  end
end

-- How long Redisson's readers under the key still hold, in ms; nil if that is unknown.
local function last_foreign_reader(s)
  if s.others ~= 'r' then
    return nil
  end
  local longest = 0
  for _, foreign in ipairs(s.foreign_fields) do
    local owner, count = foreign[1], tonumber(foreign[2])
    if count > MAX_ENTRIES then
      return nil
    end
    for entry = 1, count do
      local left = call('PTTL', timeout_key(s.lock, owner, entry))
      if left == -1 then
        return nil
      end
      longest = math.max(longest, left)
    end
  end
  return longest
end

-- Writes s.value for `ms`; without `ms` the expiry does not change.
local function write_lock(s, ms)
  local field, count = field_of(s.value, s.c.mode)
  local left = s.others and call('PTTL', s.lock) or 0
  local life = ms and left ~= -1 and int(math.max(left, ms))
  if ms and is_reader(field) then
    call('SET', timeout_key(s.lock, field, 1), '1', 'PX', int(ms))
  end
  if life then
    call('PEXPIRE', s.lock, life) -- a user without this right leaves no lock without an end
  end
  if s.field and s.field ~= field then
    call('HDEL', s.lock, s.field)
  end
  s.took = s.took or s.field ~= field
  s.field = field
  call('HSET', s.lock, 'mode', is_reader(field) and 'read' or 'write', field, count)
  if life then
    call('PEXPIRE', s.lock, life)
  end
end

-- Removes our value. Without other holders the key goes too; beside readers of Redisson the lifetime of the key shrinks
-- to theirs, as Redisson does.
local function drop_lock(s)
  if s.field then
    call('HDEL', s.lock, s.field)
    if is_reader(s.field) then
      call('DEL', timeout_key(s.lock, s.field, 1))
    end
  end
  local longest = last_foreign_reader(s)
  if not s.others or longest == 0 then
    call('DEL', s.lock)
    s.others = nil
  elseif longest then
    call('PEXPIRE', s.lock, int(longest))
  end
  s.value, s.field = false, nil
end

-- Extends the lock to at least `ms`.
local function prolong_lock(s, ms)
  prolong(s.lock, ms)
  if is_reader(s.field) then
    local timeout = timeout_key(s.lock, s.field, 1)
    call('SET', timeout, '1', 'PX', int(math.max(ms, call('PTTL', timeout))))
  end
end

-- Sets the remaining time of a lock that exists; readers of Redisson may need more.
local function shorten_lock(s, ms)
  if is_reader(s.field) then
    call('PEXPIRE', timeout_key(s.lock, s.field, 1), ms)
  end
  local longest = last_foreign_reader(s)
  if not s.others or longest then
    call('PEXPIRE', s.lock, int(math.max(tonumber(ms), longest or 0)))
  end
end

-- True if a foreign lock is under the key.
local function is_foreign(s)
  return s.others or s.value and not s.c.mode
end

-- True if others are in the way of a claim: holders, except readers of Redisson that share with ours; and Redisson's
-- queue.
local function bars(s, e)
  if s.fair or s.value and not s.c.mode then
    return true
  end
  return s.others and not (s.others == 'r' and e.mode == 's')
end

-- Whether clients of Redisson may wait outside of every queue: 'listens' if one listens for the end of the lock, and so
-- would take the lock at once; true if one was seen.
local function others_may_wait(s, wake)
  local lock, read_write = prefixed('redisson_lock__channel', s.lock), prefixed('redisson_rwlock', s.lock)
  for _, which in ipairs(wake == 'redisson s' and { 'NUMSUB', 'SHARDNUMSUB' } or { 'NUMSUB' }) do
    local listening = redis.pcall('PUBSUB', which, lock, read_write)
    if not listening.err and listening[2] + listening[4] > 0 then
      return 'listens'
    end
  end
  return s.fair or call('EXISTS', s.side .. 's' .. s.lock) == 1
end

-- True if the value under the key is one of our locks in the other layout: see lock_string.lua.
local function is_other_layout(s)
  local text = s.typed and string_at(s.lock, redis.pcall)
  return type(text) == 'string'
    and (text:find('^%x+%.%d+[?!]?$') or text:find('^shared%.%x+$') or text:find('^kept%.%d+$')) and true
end

-- Other holders, in the form of look.lua; `ours`: our field under the key is a hold.
local function foreign_holders(s, ours)
  local rows, left = {}, call('PTTL', s.lock)
  if s.typed then
    local text, kind = string_at(s.lock, redis.pcall), redis.pcall('TYPE', s.lock)
    local shown = type(text) == 'string' and text or '(' .. (kind.ok or 'unknown') .. ')'
    local owner = is_other_layout(s) and 'leasehold without layout=redisson' or 'another program'
    return { { shown, 'x', left, owner } }
  elseif s.others and #s.foreign_fields == 0 then
    return { { '(hash)', 'x', left, 'another program' } }
  end
  for _, foreign in ipairs(s.foreign_fields) do
    local field, count, till = foreign[1], tonumber(foreign[2]), left
    if s.others == 'r' then
      -- Its own time, if it entered once; the longest time is that of the lock.
      local own = count == 1 and call('PTTL', timeout_key(s.lock, field, 1)) or left
      till = own >= 0 and own or left
    end
    local owner = count > 1 and 'Redisson, entered ' .. int(count) .. ' times' or 'Redisson'
    rows[#rows + 1] = { field:gsub(':write$', ''), s.others == 'r' and 's' or 'x', till, owner }
  end
  if s.value and not ours then
    rows[#rows + 1] = { s.field, is_reader(s.field) and 's' or 'x', left, 'leasehold' }
  end
  return rows
end

-- Other waiters, from Redisson's queue, in the form of look.lua.
local function foreign_waiters(s)
  local owners = {}
  for _, waiter in ipairs(s.fair_queue) do
    owners[#owners + 1] = waiter[1] ~= OURS and waiter[1] or nil
  end
  return owners
end

-- The newest token of the FencedLock of this name: 0 without one; nil if its key holds no token.
local function newest_foreign_token(s)
  local text = string_at(prefixed('redisson_lock_token', s.lock), redis.pcall)
  if not text then
    return 0
  end
  return type(text) == 'string' and text:match('^%d+$') and tonumber(text) or nil
end

-- If there is a FencedLock, it continues above our tokens.
local function raise_foreign_token(s, newest)
  local token = prefixed('redisson_lock_token', s.lock)
  if call('EXISTS', token) == 1 then
    call('SET', token, int(newest), 'KEEPTTL')
  end
end
