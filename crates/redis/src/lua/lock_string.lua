-- The lock of a name as most lock programs store it: a string. Comes between head.lua and name.lua; name.lua lists the
-- values of a lock.

-- A hash with more fields than this is not searched for our lock in the other layout: a hash with only such a lock has
-- two fields.
local MAX_SEARCHED_FIELDS = 16
local END_TOLERANCE = 1000 -- by how much the lock of shared holds may outlive the longest of them, in ms

-- Reads the value under the key into name.value. For another type than a string, name.value is the name of the type in
-- brackets, and name.is_no_lock is true.
local function find_lock(name)
  local value = string_at(name.lock, redis.pcall)
  if type(value) ~= 'table' then
    name.value = value
  elseif not value.err:find('WRONGTYPE', 1, true) then
    name.value = string_at(name.lock, call) -- raises the error
  else
    local kind = redis.pcall('TYPE', name.lock)
    name.value, name.is_no_lock = '(' .. (kind.ok or 'no string') .. ')', true
  end
end

-- Writes name.value for `ms`; without `ms` the expiry does not change.
local function write_lock(name, ms)
  if ms then
    call('SET', name.lock, name.value, 'PX', ms)
  else
    call('SET', name.lock, name.value, 'KEEPTTL')
  end
end

-- Deletes the lock.
local function drop_lock(name)
  call('DEL', name.lock)
  name.value = false
end

-- Extends the lock to at least `ms`.
local function prolong_lock(name, ms)
  if name.record.mode == 'x' then
    prolong(name.lock, ms)
  else
    prolong_shared(name.lock, name.holds, ms)
  end
end

-- For how long the hold of a claim would last without its renewal, in ms; -1: for ever. The lock of shared holds lasts
-- as long as the longest of them: a time between the end of this hold and the end of the longest is not known to be
-- wrong.
local function time_left(name, id)
  local left = call('PTTL', name.lock)
  if name.record.mode == 'x' or left < 0 then
    return left
  end
  local now_ms = math.floor(now_us / 1000)
  local own = tonumber(call('ZSCORE', name.holds, id)) - now_ms
  local is_longer = left > last_end(name.holds) - now_ms + END_TOLERANCE
  return is_longer and left or math.min(left, own)
end

-- Sets the remaining time of a lock that exists.
local function shorten_lock(name, ms)
  call('PEXPIRE', name.lock, ms)
end

-- True if a foreign lock is under the key.
local function is_foreign(name)
  return name.value and not name.record.mode
end

-- True if a foreign value has replaced whatever hold was under the key. One of our values without its record is not
-- foreign.
local function is_overwritten(name)
  return is_foreign(name) and not has_our_form(name.value)
end

-- True if something foreign is in the way of a claim.
local function is_blocked(name)
  return is_foreign(name)
end

-- True if other programs may wait outside of our queue.
local function others_may_wait(name)
  return call('EXISTS', name.side .. 's' .. name.lock) == 1
end

-- True if the value under the key is one of our locks in the other layout: see lock_redisson.lua. A user of this layout
-- may lack the right to the commands for hashes: then the answer is false.
local function is_other_layout(name)
  local size = name.is_no_lock and redis.pcall('HLEN', name.lock)
  local fields = type(size) == 'number' and size <= MAX_SEARCHED_FIELDS and redis.pcall('HKEYS', name.lock)
  for _, field in ipairs(fields or {}) do
    if field:find('^%x+%-%x+%-%x+%-%x+%-%x+:0%d') then
      return true
    end
  end
  return false
end

-- Foreign holders, in the form of the answer of look.lua; `is_ours`: the value under the key is one of our holds.
local function foreign_holders(name, is_ours)
  if is_ours or not name.value then
    return {}
  end
  local owner = is_other_layout(name) and 'leasehold with layout=redisson' or 'another program'
  return { { name.value == '' and '(empty)' or name.value, 'x', call('PTTL', name.lock), owner } }
end

-- Foreign waiters, in the form of the answer of look.lua: this layout knows of none.
local function foreign_waiters()
  return {}
end

-- The newest token that a foreign lock of this name gave: none in this layout.
local function newest_foreign_token()
  return 0
end

-- Nothing to do in this layout: see lock_redisson.lua.
local function raise_foreign_token() end

-- Nothing to do in this layout: see lock_redisson.lua.
local function update_others() end
