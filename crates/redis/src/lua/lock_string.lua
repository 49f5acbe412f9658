-- The lock of a name as every other client stores it: a string. Comes between head.lua and name.lua, which lists the
-- values of a lock.

-- The most fields of a hash that is searched for our lock in the other layout: such a lock alone has two fields.
local MAX_SEARCHED_FIELDS = 16

-- Reads the value under the key into s.value. For another type than a string, s.value is the name of the type in
-- brackets, and s.typed is true.
local function find_lock(s)
  local value = string_at(s.lock, redis.pcall)
  if type(value) ~= 'table' then
    s.value = value
  elseif not value.err:find('WRONGTYPE', 1, true) then
    s.value = string_at(s.lock, call) -- fails as before
  else
    local kind = redis.pcall('TYPE', s.lock)
    s.value, s.typed = '(' .. (kind.ok or 'no string') .. ')', true
  end
end

-- Writes s.value for `ms`; without `ms` the expiry does not change.
local function write_lock(s, ms)
  if ms then
    call('SET', s.lock, s.value, 'PX', ms)
  else
    call('SET', s.lock, s.value, 'KEEPTTL')
  end
end

-- Deletes the lock.
local function drop_lock(s)
  call('DEL', s.lock)
  s.value = false
end

-- Extends the lock to at least `ms`.
local function prolong_lock(s, ms)
  prolong(s.lock, ms)
end

-- Sets the remaining time of a lock that exists.
local function shorten_lock(s, ms)
  call('PEXPIRE', s.lock, ms)
end

-- True if a foreign lock is under the key.
local function is_foreign(s)
  return s.value and not s.c.mode
end

-- True if others are in the way of a claim.
local function bars(s)
  return is_foreign(s)
end

-- True if other programs may wait outside of our queue.
local function others_may_wait(s)
  return call('EXISTS', s.side .. 's' .. s.lock) == 1
end

-- True if the value under the key is one of our locks in the other layout: see lock_redisson.lua. Users of this layout
-- do not need the right to its commands.
local function is_other_layout(s)
  local size = s.typed and redis.pcall('HLEN', s.lock)
  local fields = type(size) == 'number' and size <= MAX_SEARCHED_FIELDS and redis.pcall('HKEYS', s.lock)
  for _, field in ipairs(fields or {}) do
    if field:find('^%x+%-%x+%-%x+%-%x+%-%x+:0%d') then
      return true
    end
  end
  return false
end

-- Other holders, in the form of look.lua; `ours`: the value under the key is one of our holds.
local function foreign_holders(s, ours)
  if ours or not s.value then
    return {}
  end
  local owner = is_other_layout(s) and 'leasehold with layout=redisson' or 'another program'
  return { { s.value == '' and '(empty)' or s.value, 'x', call('PTTL', s.lock), owner } }
end

-- Other waiters, in the form of look.lua: none that this layout knows of.
local function foreign_waiters()
  return {}
end

-- The newest token of others, beside our counter.
local function newest_foreign_token()
  return 0
end

-- Nothing to do in this layout: see lock_redisson.lua.
local function raise_foreign_token() end

local function update_others() end
