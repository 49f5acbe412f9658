-- Removes every trace of claims. Each is answered separately: an error of one does not stop the others.
--
-- KEYS 2.. a lock for each release
-- ARGV for each release: side, <id>.<token> or only <id>., and in words: how it ended (c or a, or the end that its own
--      grant reported) · minimum hold ms or 0 · tombstone 1 or 0 · gap ms, or a: the usual gap where another program
--      was seen · optional: the waiters to wake, see wake_waiters(); and at the end the server's microseconds when the
--      connection was made
-- Answers {server time in us, then for each release: freed, unwoken (freed, but wake_waiters() failed), absent, layout,
-- or the server's error}.
-- Invariant: only the own claim is touched, and nothing of it is left; freed means the hold with that token, if one is
-- given; the head of the queue is granted before the answer leaves.

-- A period of our claims is so many times as long as the gap after it: gaps cost a tenth of the time.
local RUN_IN_GAPS = 10
local USUAL_GAP = 100  -- the default gap, in ms: most other programs pause for as long between two attempts

local function release_item(i)
  local side, id, token = ARGV[3 * i - 2], ARGV[3 * i - 1]:match('^(%x+)%.(%d*)$')
  local end_letter, min_hold, wants_tombstone, gap, wake_words = ARGV[3 * i]:match('^(%a) (%d+) (%d) (%w+) ?(.*)$')
  min_hold, wants_tombstone, requester = tonumber(min_hold), wants_tombstone == '1', id
  local name = load(KEYS[i + 1], side)
  if not name then
    return 'layout'
  end
  local others_wait = gap == 'a' and others_may_wait(name, wake_words)
  gap = tonumber(gap) or others_wait and USUAL_GAP or 0
  begin_writes(name)
  prune(name)
  local record = name.record
  local was_held = record.mode

  -- Records how the hold ended, for the next holder.
  local function note_release(holder)
    name.dirty = true
    if holder.state == '!' then
      note_end(name, holder.token, 'b')
    elseif token ~= '' then
      note_end(name, holder.token, end_letter)
    end
    -- Released by id alone: the claim never knew that it held, so nothing was done under it.
  end

  -- Ends an exclusive hold.
  local function free_exclusive(holder)
    note_release(holder)
    record.run = record.run or gap > 0 and math.floor(holder.since / 1000) or nil
    if holder.state == '?' then
      call('HDEL', name.entries, id)
      call('ZREM', name.entry_ends, id)
    end
    if min_hold > 0 and holder.state ~= '!' then
      holder.state = 'kept'
      name.value = value_of(holder)
      write_lock(name, min_hold)
    else
      drop_lock(name)
      record.mode, record.holder = nil, nil
    end
  end

  -- Ends a shared hold or permits.
  local function free_shared(holder)
    note_release(holder)
    record.run = record.run or gap > 0 and math.floor(holder.granted / 1000) or nil
    remove_holder(name, id, holder)
    if min_hold > 0 and holder.state ~= '!' then
      holder.state = 'kept'
      local kept_id = 'kept.' .. int(holder.token)
      record.count, record.used = record.count + 1, record.used + holder.count
      call('ZADD', name.holds, now_ms + min_hold, kept_id)
      write_entry(name, kept_id, holder)
      outlive(name.holds, min_hold + ENDED_LIFE)
      outlive(name.entries, min_hold + ENDED_LIFE)
    end
    shrink_sentinel(name)
  end

  -- Ends the hold or the wait of the claim; returns the answer.
  local function free()
    -- The holder in the record, if it is this claim; otherwise the claim has an entry, or nothing.
    local exclusive = record.mode == 'x' and record.holder.id == id and record.holder.state ~= 'kept' and record.holder
    local holder = exclusive or read_entry(name, id)
    if not holder then
      return 'absent'
    elseif not exclusive and not call('ZSCORE', name.holds, id) then
      name.dirty = true
      call('ZREM', name.queue, id)
      call('ZREM', name.entry_ends, id)
      call('HDEL', name.entries, id)
      -- The hold expired before its claim confirmed it: the remaining queue entry is not the hold that was to be freed.
      return token == '' and 'freed' or 'absent'
    end
    local is_meant = token == '' or token == int(holder.token)
    if not is_meant then
      -- Granted again, to a late request: no client knows of this hold, so no other request would end it.
      token, min_hold = '', 0
    end
    if exclusive then
      free_exclusive(holder)
    else
      free_shared(holder)
    end
    return is_meant and 'freed' or 'absent'
  end

  -- Leaves a name for a while to other programs, which are not in our queue: after each period in which the name passed
  -- from one of our claims to the next for RUN times as long as the gap. If a client of another program listens, which
  -- takes the name at once, the period is as long as the gap. The first waiters ask when the gap is over.
  local function leave_gap()
    local first_waiters = call('ZRANGE', name.queue, 0, WATCHERS - 1)
    local run_in_gaps = others_wait == 'listens' and 1 or RUN_IN_GAPS
    if #first_waiters == 0 or record.mode or not record.run or now_ms - record.run < run_in_gaps * gap then
      return
    end
    record.run, record.rest, name.dirty = nil, now_ms + math.min(gap, MAX_GAP), true
    for _, waiter in ipairs(first_waiters) do
      local entry = read_entry(name, waiter)
      if entry then
        notify(entry.channel, { 'ring', waiter, name.lock })
      end
    end
  end

  local reply = free()
  if gap > 0 and reply == 'freed' then
    leave_gap()
  end
  if wants_tombstone then
    add_tombstone(name, id)
  end
  settle(name)
  save(name, min_hold)
  -- Nothing happens at the end of a minimum hold time: the head of the queue asks then, and must know when that is.
  if reply == 'freed' and (min_hold > 0 or record.holder and record.holder.state == 'kept') then
    local head = redis.call('ZRANGE', name.queue, 0, 0)[1]
    local entry = head and read_entry(name, head)
    if entry then
      notify(entry.channel, { 'ring', head, name.lock })
    end
  end
  if was_held and not name.value and not wake_waiters(name, wake_words) and reply == 'freed' then
    return 'unwoken'
  end
  return reply
end

return answer_items(release_item)
