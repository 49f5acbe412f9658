-- Removes every trace of claims. Each is answered separately: an error of one does not stop the others.
--
-- KEYS 2.. a lock for each release
-- ARGV for each release: side, <id>.<token> or only <id>., and in words: how it ended (c or a, or the end that its own
--      grant reported) · minimum hold ms or 0 · tombstone 1 or 0 · gap ms, or a: the usual gap where another program
--      was seen · optional: the waiters to wake, see wake_waiters(); and at the end the server's microseconds when the
--      connection was made
-- Answers {server us, then for each release: freed, unwoken (freed, but wake_waiters() failed), absent, layout, or the
-- server's error}.
-- Invariant: only the own claim is touched, and nothing of it is left; freed means the hold with that token, if one is
-- given; the head of the queue is granted before the answer leaves.
local RUN = 10     -- a period of our claims is so many times as long as the gap after it: gaps cost a tenth of the time
local USUAL = 100  -- the default gap, in ms: most other programs pause for as long between two attempts

local function one(at)
  local side, id, token = ARGV[3 * at - 2], ARGV[3 * at - 1]:match('^(%x+)%.(%d*)$')
  local how, min_hold, wants_tombstone, gap, wake = ARGV[3 * at]:match('^(%a) (%d+) (%d) (%w+) ?(.*)$')
  min_hold, wants_tombstone, requester = tonumber(min_hold), wants_tombstone == '1', id
  local s = load(KEYS[at + 1], side)
  if not s then
    return 'layout'
  end
  local others = gap == 'a' and others_may_wait(s, wake)
  gap = tonumber(gap) or others and USUAL or 0
  arm(s)
  prune(s)
  local c = s.c
  local was_held = c.mode

  -- Records how the hold ended, for the next holder.
  local function note(h)
    s.dirty = true
    if h.state == '!' then
      note_end(s, h.token, 'b')
    elseif token ~= '' then
      note_end(s, h.token, how)
    end
    -- Released by id alone: the claim never knew that it held, so nothing was done under it.
  end

  -- Ends an exclusive hold.
  local function free_alone(h)
    note(h)
    c.run = c.run or gap > 0 and math.floor(h.since / 1000) or nil
    if h.state == '?' then
      call('HDEL', s.entries, id)
      call('ZREM', s.entry_ends, id)
    end
    if min_hold > 0 and h.state ~= '!' then
      h.state = 'kept'
      s.value = value_of(h)
      write_lock(s, min_hold)
    else
      drop_lock(s)
      c.mode, c.holder = nil, nil
    end
  end

  -- Ends a shared hold or permits.
  local function free_shared(h)
    note(h)
    c.run = c.run or gap > 0 and math.floor(h.granted / 1000) or nil
    remove_holder(s, id, h)
    if min_hold > 0 and h.state ~= '!' then
      h.state = 'kept'
      local blocker = 'kept.' .. int(h.token)
      c.count, c.used = c.count + 1, c.used + h.count
      call('ZADD', s.holds, now + min_hold, blocker)
      put(s, blocker, h)
      outlive(s.holds, min_hold + ENDED_LIFE)
      outlive(s.entries, min_hold + ENDED_LIFE)
    end
    shrink(s)
  end

  -- Ends the hold or the wait of the claim; returns the answer.
  local function free()
    local alone = c.mode == 'x' and c.holder.id == id and c.holder.state ~= 'kept' and c.holder
    local h = alone or entry(s, id)
    if not h then
      return 'absent'
    elseif not alone and not call('ZSCORE', s.holds, id) then
      s.dirty = true
      call('ZREM', s.queue, id)
      call('ZREM', s.entry_ends, id)
      call('HDEL', s.entries, id)
      -- The hold expired before its claim confirmed it: the remaining queue entry is not the hold that was to be freed.
      return token == '' and 'freed' or 'absent'
    end
    local meant = token == '' or token == int(h.token)
    if not meant then
      -- Granted again, to a late request: no client knows of this hold, so no other request would end it.
      token, min_hold = '', 0
    end
    if alone then
      free_alone(h)
    else
      free_shared(h)
    end
    return meant and 'freed' or 'absent'
  end

  -- Leaves a name for a while to other programs, which are not in our queue: after each period in which the name passed
  -- from one of our claims to the next for RUN times as long as the gap. If a client of another program listens, which
  -- takes the name at once, the period is as long as the gap. The first waiters ask when the gap is over.
  local function leave_gap()
    local first = call('ZRANGE', s.queue, 0, WATCHERS - 1)
    if #first == 0 or c.mode or not c.run or now - c.run < (others == 'listens' and 1 or RUN) * gap then
      return
    end
    c.run, c.rest, s.dirty = nil, now + math.min(gap, LONGEST_GAP), true
    for _, waiter in ipairs(first) do
      local e = entry(s, waiter)
      if e then
        notify(e.channel, { 'ring', waiter, s.lock })
      end
    end
  end

  local reply = free()
  if gap > 0 and reply == 'freed' then
    leave_gap()
  end
  if wants_tombstone then
    add_tombstone(s, id)
  end
  settle(s)
  save(s, min_hold)
  -- Nothing happens at the end of a minimum hold time: the head of the queue asks then, and must know when that is.
  if reply == 'freed' and (min_hold > 0 or c.holder and c.holder.state == 'kept') then
    local first = redis.call('ZRANGE', s.queue, 0, 0)[1]
    local e = first and entry(s, first)
    if e then
      notify(e.channel, { 'ring', first, s.lock })
    end
  end
  if was_held and not s.value and not wake_waiters(s, wake) and reply == 'freed' then
    return 'unwoken'
  end
  return reply
end

return each(one)
