-- Ends the hold whose block of tokens contains a number.
--
-- KEYS 2 lock
-- ARGV 1 side · 2 token · 3 force 1 or 0 · 4 description of the waiters to wake, or nothing
-- Answers {server us, done or absent or layout}.
-- Invariant: without force the broken hold stays in the lock until its holder releases it or its lease ends, so that
-- two claims never hold.
local number, force = tonumber(ARGV[2]), ARGV[3] == '1'
local s = load(KEYS[2], ARGV[1])
if not s then
  return { us, 'layout' }
end
arm(s)
prune(s)
local c = s.c

-- Whether the block of tokens of a hold contains the number.
local function carries(h)
  return h.token <= number and number < h.token + h.tokens
end

local function notify_holder(id, h)
  if h.channel then
    notify(h.channel, { 'broken', id, s.lock })
  end
end

-- Ends an exclusive hold, or, without force, marks it as broken.
local function break_alone(h)
  s.dirty = true
  local id = h.id
  call('HDEL', s.entries, id)
  call('ZREM', s.entry_ends, id)
  if h.state == 'kept' or force then
    drop_lock(s)
    c.mode, c.holder = nil, nil
    if h.state ~= 'kept' then
      note_end(s, h.token, 'b')
      add_tombstone(s, id)
      notify_holder(id, h)
    end
    return
  end
  h.state = '!'
  s.value = value_of(h)
  write_lock(s)
  notify_holder(id, h)
end

-- Ends a shared hold or permits, or, without force, marks them as broken.
local function break_shared(id, h)
  s.dirty = true
  if h.state == 'kept' or force then
    remove_holder(s, id, h)
    if h.state ~= 'kept' then
      note_end(s, h.token, 'b')
      add_tombstone(s, id)
      notify_holder(id, h)
    end
    shrink(s)
    return
  end
  call('HDEL', s.entries, id)
  h.state = '!'
  put(s, id, h)
  notify_holder(id, h)
end

-- Finds the hold and breaks it; returns the answer.
local function find_and_break()
  if c.mode == 'x' then
    if carries(c.holder) then
      break_alone(c.holder)
      return 'done'
    end
  elseif c.mode then
    for _, id in ipairs(call('ZRANGE', s.holds, 0, -1)) do
      local h = entry(s, id)
      if carries(h) then
        break_shared(id, h)
        return 'done'
      end
    end
  end
  return 'absent'
end

local reply = find_and_break()
settle(s)
save(s)
if reply == 'done' and not s.value then
  wake_waiters(s, ARGV[4])
end
return { us, reply }
