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
  local claim = read_claim(i)
  if not claim then
    return 'layout'
  end
  local name, record, id, request, new = claim.name, claim.name.record, claim.id, claim.request, claim.new
  if request.action == 'ask' then
    begin_writes(name)
  end

  -- Extends the hold of a claim that holds, and returns the answer: the same grant. nil if the claim does not hold.
  local function answer_holder()
    local holder = hold_of(claim)
    if not holder then
      return nil
    elseif holder.state == '!' then
      return 'gone'
    end
    confirm(name, id, claim.ttl)
    return held(claim, holder)
  end

  -- Enqueues the claim, at the end.
  local function enqueue(entry)
    local last = call('ZREVRANGE', name.queue, 0, 0, 'WITHSCORES')[2]
    entry.state, entry.channel = 'waiting', new.channel
    write_entry(name, id, entry)
    call('ZADD', name.queue, (tonumber(last) or 0) + 1, id)
    call('ZADD', name.entry_ends, now_ms + claim.entry_life, id)
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
    call('ZADD', name.entry_ends, now_ms + claim.entry_life, id)
  end

  local function answer()
    bring_up_to_date(claim)
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
      return hint(claim, 'waiting', ahead)
    elseif entry then
      -- The claim missed its grant, and goes to the end of the queue.
      local refused = clash(claim)
      if refused then
        return refused
      end
      enqueue(entry)
      settle(name)
      return answer_holder() or hint(claim, 'waiting', call('ZRANK', name.queue, id))
    end
    if request.action == 'ask' then
      return 'gone'
    end
    local refused, waiters = refusal(claim)
    if not refused then
      grant(name, id, new, mint(name, new), claim.ttl, '')
      return held(claim, new)
    elseif refused ~= 'taken' then
      return refused
    elseif request.may_queue == '0' then
      return hint(claim, 'taken', waiters)
    elseif call('ZCARD', name.entry_ends) >= MAX_WAITERS then
      return 'full'
    end
    enqueue(new)
    return hint(claim, 'waiting', waiters)
  end

  local reply = answer()
  save(name, claim.ttl)
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
