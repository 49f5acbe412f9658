-- Removes every trace of a claim. Comes before release_each.lua, which answers many releases, and before
-- write_memo.lua.
--
-- KEYS 2.. a lock for each release
-- ARGV for each release: side, <id>.<token> or only <id>., and in words: how it ended (c or a, or the end that its own
--      grant reported) · minimum hold ms or 0 · tombstone 1 or 0 · gap ms, or a: the usual gap where another program
--      was seen · optional: the waiters to wake, see wake_waiters(); and at the end the server's microseconds when the
--      connection was made
-- Answers {server time in us, then for each release: freed, unwoken (freed, but wake_waiters() failed), absent, layout,
-- or the server's error}.
-- Invariant: a release changes only its own claim, and leaves nothing of it; freed means that the hold with the given
-- token ended, if a token is given; the head of the queue is granted before the answer leaves.

-- The name passes between our claims for this many times the length of a gap before a gap comes: so gaps take about a
-- tenth of the time.
local RUN_IN_GAPS = 10
local USUAL_GAP = 100  -- the default gap, in ms: as long as the pause of most other programs between two attempts

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
  if record.relied and record.relied.id == id then
    record.relied, name.dirty = nil, true
  end
  local was_held = record.mode

  -- Records how the hold ended, for the next holder.
  local function note_release(holder)
    name.dirty = true
    if holder.state == '!' then
      note_end(name, holder.token, 'b')
    elseif token ~= '' then
      note_end(name, holder.token, end_letter)
    end
    -- If the release has only an id, the client never knew that the claim held, so nothing was done under the hold.
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
    -- The holder in the record, if that is this claim. A claim that is not this holder has an entry, or nothing.
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
      -- The claim was granted again, by a late request of it: no client knows of this hold, so no other request would
      -- end it.
      token, min_hold = '', 0
    end
    if exclusive then
      free_exclusive(holder)
    else
      free_shared(holder)
    end
    return is_meant and 'freed' or 'absent'
  end

  -- Leaves a name for a while (a gap) to other programs, which are not in our queue. A gap comes when the name has
  -- passed from one of our claims to the next for RUN_IN_GAPS times the length of the gap. If a client of another
  -- program listens, and so acquires the name at once, the gap comes after one such length. The first waiters are
  -- notified; they ask again when the gap is over.
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
  -- The server does nothing at the end of a minimum hold time. The head of the queue must ask at that moment, so it
  -- must know the moment.
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
