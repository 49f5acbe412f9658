-- Claims names, enqueues claims, or reports their state. Each claim is answered separately.
--
-- KEYS 2.. a lock for each claim
-- ARGV for each claim: side, id, and the request text: create or ask · mode x, s or p · count · limit (0 for x and s) ·
--      ttl ms · claim time ms · lease of a queue entry, ms · may queue 1 or 0 · tokens · channel · owner; and at the
--      end the server's microseconds when the connection was made
-- Answers {server us, then for each claim one of:
--   held <token> <tokens> <ttl ms> <how the previous hold ended> · waiting <ahead> <free in ms or -1> <foreign>
--   taken <ahead> <free in ms or -1> <foreign> · gone · clash <limit> · full · counter · layout, or a server error}.
-- foreign is 1 while another program holds, 2 while a value that is no lock is there without an expiry, 3 while
-- leasehold holds the name in its other layout, else 0.
-- Invariant: ask creates nothing; a dead claim is gone; no claim passes a live claim in the queue.
local function one(at)
  local a, id = asked(at), ARGV[3 * at - 1]
  local how, ttl, entry_life = a.how, tonumber(a.ttl), tonumber(a.entry_life)
  requester = id
  local s = load(KEYS[at + 1], ARGV[3 * at - 2])
  if not s then
    return 'layout'
  end
  local c = s.c
  if how == 'ask' then
    arm(s)
  end

  -- The answer to a claim that does not hold; `ahead`: how many waiters are ahead of it.
  local function hint(outcome, ahead)
    local free_in = (outcome == 'taken' or ahead < WATCHERS) and frees_in(s) or -1
    local foreign = is_foreign(s) and 1 or 0
    if foreign == 1 and is_other_layout(s) then
      foreign = 3
    elseif foreign == 1 and s.typed and call('PTTL', s.lock) == -1 then
      foreign = 2 -- probably no lock at all
    end
    return table.concat({ outcome, ahead, free_in, foreign }, ' ')
  end

  local function held(h)
    return table.concat({ 'held', int(h.token), h.tokens, ttl, h.prev }, ' ')
  end

  -- The answer to a claim that holds: the same grant, extended.
  local function answer_holder()
    local h
    if c.mode == 'x' then
      h = c.holder.id == id and c.holder.state ~= 'kept' and c.holder
    elseif c.mode then
      h = call('ZSCORE', s.holds, id) and entry(s, id)
    end
    if not h then
      return nil
    elseif h.state == '!' then
      return 'gone'
    end
    confirm(s, id, ttl)
    return held(h)
  end

  local channel, owner = a.client:match('^(%S+) (.*)$')
  local new = {
    mode = a.mode, count = tonumber(a.count), limit = tonumber(a.limit), claim = tonumber(a.claim),
    tokens = tonumber(a.tokens), channel = channel, owner = owner, since = us,
  }

  -- The refusal of a claim whose kind of lock or limit differs from the present one; nil or false without.
  local function clash()
    return c.limit and c.limit ~= new.limit and 'clash ' .. c.limit
  end

  -- Enqueues the claim, at the end.
  local function enqueue(e)
    local last = call('ZREVRANGE', s.queue, 0, 0, 'WITHSCORES')[2]
    e.state, e.channel = 'waiting', new.channel
    put(s, id, e)
    call('ZADD', s.queue, (tonumber(last) or 0) + 1, id)
    call('ZADD', s.entry_ends, now + entry_life, id)
    s.dirty = s.dirty or c.limit ~= new.limit
    c.limit = new.limit
  end

  -- A request of a waiter extends its queue entry; from now on its notifications go to the channel of this request.
  local function refresh_entry(e)
    if e.channel ~= new.channel then
      e.channel = new.channel
      put(s, id, e)
    end
    call('ZADD', s.entry_ends, now + entry_life, id)
  end

  local function answer()
    prune(s)
    if is_foreign(s) then
      note_foreign(s)
    end
    settle(s)
    local granted = answer_holder()
    if granted then
      return granted
    end
    local e = entry(s, id)
    local ahead = e and call('ZRANK', s.queue, id)
    if ahead then
      if ahead == 0 and fits(s, e) and not newest_token(s) then
        return 'counter'
      end
      refresh_entry(e)
      return hint('waiting', ahead)
    elseif e then
      -- The claim missed its grant, and goes to the end of the queue.
      local refused = clash()
      if refused then
        return refused
      end
      enqueue(e)
      settle(s)
      return answer_holder() or hint('waiting', call('ZRANK', s.queue, id))
    end
    if how == 'ask' or has_tombstone(s, id) then
      return 'gone'
    end
    local refused = clash()
    if refused then
      return refused
    end
    ahead = call('ZCARD', s.queue)
    if ahead == 0 and fits(s, new) then
      if not newest_token(s) then
        return 'counter'
      end
      grant(s, id, new, mint(s, new), ttl, '')
      return held(new)
    elseif a.may_queue == '0' then
      return hint('taken', ahead)
    elseif call('ZCARD', s.entry_ends) >= MAX_WAITERS then
      return 'full'
    end
    enqueue(new)
    return hint('waiting', ahead)
  end

  local reply = answer()
  save(s, ttl)
  if reply:sub(1, 7) == 'waiting'
    and math.min(call('PTTL', s.entry_ends), call('PTTL', s.queue)) < QUEUE_LEAST
  then
    outlive(s.queue, QUEUE_LIFE)
    outlive(s.entry_ends, QUEUE_LIFE)
    outlive(s.entries, QUEUE_LIFE)
  end
  return reply
end

return each(one)
