-- Ends the hold whose block of tokens contains a number.
--
-- KEYS 2 lock
-- ARGV 1 side · 2 token · 3 force 1 or 0 · 4 description of the waiters to wake, or nothing
-- Answers {server us, done or absent or layout}.
-- Invariant: without force the hold stays as a tombstone until its holder releases it or its lease ends, so that two
-- never hold.
local number, force = tonumber(ARGV[2]), ARGV[3] == '1'
local s = load(KEYS[2], ARGV[1])
if not s then
  return { us, 'layout' }
end
arm(s)
prune(s)
local c = s.c

local function carries(h)
  return h.token <= number and number < h.token + h.tokens
end

local function notify_holder(id, h)
  if h.channel then
    notify(h.channel, { 'broken', id, s.lock })
  end
end

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

local function find()
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

local reply = find()
settle(s)
save(s)
if reply == 'done' and not s.value then
  wake_waiters(s, ARGV[4])
end
return { us, reply }
