-- One claim of a request, and what keeps it from a grant. Comes after name.lua and stale.lua, and before claim.lua or
-- claim_all.lua.
--
-- `claim` is a claim as read_claim() reads it: its .id, its .request (see claim_request.lua), its .name, .ttl and
-- .entry_life (the lease of a queue entry) in ms, and .new, the entry of the claim if it is new.

-- Reads the claim with this number; nil if the record of its name is of another version.
local function read_claim(i)
  local request, id = request_of(i), ARGV[3 * i - 1]
  requester = id
  local name = load(KEYS[i + 1], ARGV[3 * i - 2])
  if not name then
    return nil
  end
  local channel, owner = request.client:match('^(%S+) (.*)$')
  local new = {
    mode = request.mode, count = tonumber(request.count), limit = tonumber(request.limit),
    claim = tonumber(request.claim_time), tokens = tonumber(request.tokens),
    channel = channel, owner = owner, since = now_us,
  }
  return {
    id = id, request = request, name = name, ttl = tonumber(request.ttl), entry_life = tonumber(request.entry_life),
    new = new,
  }
end

-- Ends what has expired, and grants the name to the waiters that fit.
local function bring_up_to_date(claim)
  local name = claim.name
  prune(name)
  if is_foreign(name) then
    note_foreign(name)
    if claim.request.reclaims == '1' then
      reclaim(name)
    end
  end
  settle(name)
end

-- The hold of the claim: the exclusive holder, or the entry of a shared hold; nil or false if the claim does not hold.
local function hold_of(claim)
  local name, record = claim.name, claim.name.record
  if record.mode == 'x' then
    return record.holder.id == claim.id and record.holder.state ~= 'kept' and record.holder
  end
  return record.mode and call('ZSCORE', name.holds, claim.id) and read_entry(name, claim.id)
end

-- The refusal of a claim whose kind of lock or limit differs from that of the present holders; nil or false if they
-- are the same.
local function clash(claim)
  local limit = claim.name.record.limit
  return limit and limit ~= claim.new.limit and 'clash ' .. limit
end

-- What keeps a new claim from a grant at once: an answer of claim.lua; nil if nothing does. For 'taken', also returns
-- how many waiters are ahead of the claim.
local function refusal(claim)
  local name = claim.name
  if has_tombstone(name, claim.id) then
    return 'gone'
  end
  local refused = clash(claim)
  if refused then
    return refused
  end
  local waiters = call('ZCARD', name.queue)
  if waiters > 0 or not fits(name, claim.new) then
    return 'taken', waiters
  end
  return not newest_token(name) and 'counter' or nil
end

-- The answer to a claim that does not hold; `ahead`: how many waiters are ahead of it.
local function hint(claim, outcome, ahead)
  local name = claim.name
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
local function held(claim, holder)
  return table.concat({ 'held', int(holder.token), holder.tokens, claim.ttl, holder.prev }, ' ')
end
