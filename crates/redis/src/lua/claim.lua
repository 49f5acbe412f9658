-- Claims names, enqueues claims, or reports the state of claims. Each claim is answered separately.
--
-- KEYS 2.. a lock for each claim
-- ARGV for each claim: side, id, and the request text: create or ask · mode x, s or p · count · limit (0 for x and s) ·
--      ttl ms · claim time ms · lease of a queue entry, ms · may queue 1 or 0 · reclaims stale locks 1 or 0 · tokens ·
--      channel · owner; and at the end the server's microseconds when the connection was made
-- Answers {server time in us, then for each claim one of:
--   held <token> <tokens> <ttl ms> <how the previous hold ended> · waiting <ahead> <free in ms or -1> <foreign>
--   taken <ahead> <free in ms or -1> <foreign> · gone · clash <limit> · full · counter · layout, or a server error}.
-- foreign is 1 while another program holds the lock, 2 while the lock key has a value that is no lock and has no
-- expiry, 3 while leasehold holds the name in its other layout, else 0.
-- Invariant: ask creates nothing; a dead claim is answered gone; no claim overtakes a live claim in the queue.
local function claim_item(i)
  local request, id = request_of(i), ARGV[3 * i - 1]
  local action, ttl, entry_life = request.action, tonumber(request.ttl), tonumber(request.entry_life)
  requester = id
  local name = load(KEYS[i + 1], ARGV[3 * i - 2])
  if not name then
    return 'layout'
  end
  local record = name.record
  if action == 'ask' then
    begin_writes(name)
  end

  -- The answer to a claim that does not hold; `ahead`: how many waiters are ahead of it.
  local function hint(outcome, ahead)
    local free_in = (outcome == 'taken' or ahead < WATCHERS) and frees_in(name) or -1
    local foreign = is_foreign(name) and 1 or 0
    if foreign == 1 and is_other_layout(name) then
      foreign = 3
    elseif foreign == 1 and name.is_no_lock and call('PTTL', name.lock) == -1 then
      foreign = 2 -- probably no lock at all
    end
    return table.concat({ outcome, ahead, free_in, foreign }, ' ')
  end

  -- The answer to a claim that holds.
  local function held(holder)
    return table.concat({ 'held', int(holder.token), holder.tokens, ttl, holder.prev }, ' ')
  end

  -- Extends the hold of a claim that holds, and returns the answer: the same grant. nil if the claim does not hold.
  local function answer_holder()
    local holder
    if record.mode == 'x' then
      holder = record.holder.id == id and record.holder.state ~= 'kept' and record.holder
    elseif record.mode then
      holder = call('ZSCORE', name.holds, id) and read_entry(name, id)
    end
    if not holder then
      return nil
    elseif holder.state == '!' then
      return 'gone'
    end
    confirm(name, id, ttl)
    return held(holder)
  end

  -- The entry of the claim, if it is new.
  local channel, owner = request.client:match('^(%S+) (.*)$')
  local new = {
    mode = request.mode, count = tonumber(request.count), limit = tonumber(request.limit),
    claim = tonumber(request.claim_time), tokens = tonumber(request.tokens),
    channel = channel, owner = owner, since = now_us,
  }

  -- The refusal of a claim whose kind of lock or limit differs from that of the present holders; nil or false if they
  -- are the same.
  local function clash()
    return record.limit and record.limit ~= new.limit and 'clash ' .. record.limit
  end

  -- Enqueues the claim, at the end.
  local function enqueue(entry)
    local last = call('ZREVRANGE', name.queue, 0, 0, 'WITHSCORES')[2]
    entry.state, entry.channel = 'waiting', new.channel
    write_entry(name, id, entry)
    call('ZADD', name.queue, (tonumber(last) or 0) + 1, id)
    call('ZADD', name.entry_ends, now_ms + entry_life, id)
    name.dirty = name.dirty or record.limit ~= new.limit
    record.limit = new.limit
  end

  -- A request of a waiter extends its queue entry; from now on the notifications of the waiter go to the channel of
  -- this request.
  local function refresh_entry(entry)
    if entry.channel ~= new.channel then
      entry.channel = new.channel
      write_entry(name, id, entry)
    end
    call('ZADD', name.entry_ends, now_ms + entry_life, id)
  end

  local function answer()
    prune(name)
    if is_foreign(name) then
      note_foreign(name)
      if request.reclaims == '1' then
        reclaim(name)
      end
    end
    settle(name)
    local granted = answer_holder()
    if granted then
      return granted
    end
    local entry = read_entry(name, id)
    local ahead = entry and call('ZRANK', name.queue, id)
    if ahead then
      if ahead == 0 and fits(name, entry) and not newest_token(name) then
        return 'counter'
      end
      refresh_entry(entry)
      return hint('waiting', ahead)
    elseif entry then
      -- The claim missed its grant, and goes to the end of the queue.
      local refused = clash()
      if refused then
        return refused
      end
      enqueue(entry)
      settle(name)
      return answer_holder() or hint('waiting', call('ZRANK', name.queue, id))
    end
    if action == 'ask' or has_tombstone(name, id) then
      return 'gone'
    end
    local refused = clash()
    if refused then
      return refused
    end
    ahead = call('ZCARD', name.queue)
    if ahead == 0 and fits(name, new) then
      if not newest_token(name) then
        return 'counter'
      end
      grant(name, id, new, mint(name, new), ttl, '')
      return held(new)
    elseif request.may_queue == '0' then
      return hint('taken', ahead)
    elseif call('ZCARD', name.entry_ends) >= MAX_WAITERS then
      return 'full'
    end
    enqueue(new)
    return hint('waiting', ahead)
  end

  local reply = answer()
  save(name, ttl)
  if reply:sub(1, 7) == 'waiting'
    and math.min(call('PTTL', name.entry_ends), call('PTTL', name.queue)) < MIN_QUEUE_LIFE
  then
    outlive(name.queue, QUEUE_LIFE)
    outlive(name.entry_ends, QUEUE_LIFE)
    outlive(name.entries, QUEUE_LIFE)
  end
  return reply
end

return answer_items(claim_item)
