-- The lock of a name as every other client has it: a string. Stands between head.lua and name.lua, which tells what is in it.

local SEEN_TYPE_FIELDS = 16 -- a lock of the other layout alone has two fields

-- Finds what stands under the key: s.value; if that is no string, its type in brackets, which no value of ours is, and s.typed.
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

-- Writes what s.value says, for so long; without a time for as long as it stands already.
local function keep_lock(s, ms)
  if ms then
    call('SET', s.lock, s.value, 'PX', ms)
  else
    call('SET', s.lock, s.value, 'KEEPTTL')
  end
end

local function drop_lock(s)
  call('DEL', s.lock)
  s.value = false
end

local function prolong_lock(s, ms)
  prolong(s.lock, ms)
end

-- As keep_lock(), of a lock that stands already.
local function cut_lock(s, ms)
  call('PEXPIRE', s.lock, ms)
end

-- True if somebody else's lock stands under the key.
local function is_foreign(s)
  return s.value and not s.c.mode
end

-- True if others are in the way of a claim.
local function bars(s)
  return is_foreign(s)
end

-- True if other programs may wait for a turn that they do not get by standing in line.
local function awaited(s)
  return call('EXISTS', s.side .. 's' .. s.lock) == 1
end

-- True if what stands under the key is a lock of ours in the other layout: see lock_redisson.lua. Its commands are not among
-- those that a user of this layout needs.
local function is_other_layout(s)
  local size = s.typed and redis.pcall('HLEN', s.lock)
  local fields = type(size) == 'number' and size <= SEEN_TYPE_FIELDS and redis.pcall('HKEYS', s.lock)
  for _, field in ipairs(fields or {}) do
    if field:find('^%x+%-%x+%-%x+%-%x+%-%x+:0%d') then
      return true
    end
  end
  return false
end

-- Who else holds, as look.lua tells it; `ours`: it is a hold of ours that stands under the key.
local function strangers(s, ours)
  if ours or not s.value then
    return {}
  end
  local owner = is_other_layout(s) and 'leasehold with layout=redisson' or 'another program'
  return { { s.value == '' and '(empty)' or s.value, 'x', call('PTTL', s.lock), owner } }
end

-- Who else waits, as look.lua tells it: nobody of whom this layout knows.
local function strangers_in_line()
  return {}
end

-- The newest token that others count on from, beside our counter.
local function newest_of_others()
  return 0
end

local function tell_others() end

local function mind_others() end
