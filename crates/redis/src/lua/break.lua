-- Ends the hold whose block of tokens contains a number.
--
-- KEYS 2 lock
-- ARGV 1 side · 2 token · 3 force 1 or 0 · 4 description of the waiters to wake, or nothing
-- Answers {server time in us, done or absent or layout}.
-- Invariant: without force the broken hold stays in the lock until its holder releases it or its lease ends, so that
-- two claims never hold.
local token, force = tonumber(ARGV[2]), ARGV[3] == '1'
local name = load(KEYS[2], ARGV[1])
if not name then
  return { now_us, 'layout' }
end
begin_writes(name)
prune(name)
local record = name.record

-- Whether the block of tokens of a hold contains the number.
local function has_token(holder)
  return holder.token <= token and token < holder.token + holder.tokens
end

-- Notifies the holder of the break.
local function notify_holder(id, holder)
  if holder.channel then
    notify(holder.channel, { 'broken', id, name.lock })
  end
end

-- Ends an exclusive hold, or, without force, marks it as broken.
local function break_exclusive(holder)
  name.dirty = true
  local id = holder.id
  call('HDEL', name.entries, id)
  call('ZREM', name.entry_ends, id)
  if holder.state == 'kept' or force then
    drop_lock(name)
    record.mode, record.holder = nil, nil
    if holder.state ~= 'kept' then
      note_end(name, holder.token, 'b')
      add_tombstone(name, id)
      notify_holder(id, holder)
    end
    return
  end
  holder.state = '!'
  name.value = value_of(holder)
  write_lock(name)
  notify_holder(id, holder)
end

-- Ends a shared hold or permits, or, without force, marks them as broken.
local function break_shared(id, holder)
  name.dirty = true
  if holder.state == 'kept' or force then
    remove_holder(name, id, holder)
    if holder.state ~= 'kept' then
      note_end(name, holder.token, 'b')
      add_tombstone(name, id)
      notify_holder(id, holder)
    end
    shrink_sentinel(name)
    return
  end
  call('HDEL', name.entries, id)
  holder.state = '!'
  write_entry(name, id, holder)
  notify_holder(id, holder)
end

-- Finds the hold and breaks it; returns the answer.
local function find_and_break()
  if record.mode == 'x' then
    if has_token(record.holder) then
      break_exclusive(record.holder)
      return 'done'
    end
  elseif record.mode then
    for _, id in ipairs(call('ZRANGE', name.holds, 0, -1)) do
      local holder = read_entry(name, id)
      if has_token(holder) then
        break_shared(id, holder)
        return 'done'
      end
    end
  end
  return 'absent'
end

local reply = find_and_break()
settle(name)
save(name)
if reply == 'done' and not name.value then
  wake_waiters(name, ARGV[4])
end
return { now_us, reply }
