-- Holds of ours whose value another program replaced, while a client may still rely on them: until its next renewal, or
-- until the end of its lease. Meanwhile stale.lua does not take the key over. Comes before name.lua.

-- Until when a client may rely on a hold of ours whose value another program replaced, or would rely if that happened
-- now, in server ms; 0 if there is no such hold. For an exclusive hold this is an upper bound, from the time of the
-- record: the record outlives the hold by ENDED_LIFE - RECORD_SLACK or longer. Where servers share the slots (the
-- counter is that of a slot), renewals in a migrating slot do not extend the record, so the bound there is looser.
local function relied_until(name)
  local record = name.record
  local till = record.relied and record.relied.till or 0
  if record.mode == 'x' then
    local slack = KEYS[1]:find('leasehold:{}', 1, true) == 1 and RECORD_SLACK or ENDED_LIFE
    till = math.max(till, math.floor(now_us / 1000) + call('PTTL', name.record_key) - ENDED_LIFE + slack)
  elseif record.mode then
    till = math.max(till, last_end(name.holds))
  end
  return till
end

-- Records that another program replaced the value of the holds in the record.
local function note_replaced(name)
  local record, till = name.record, relied_until(name)
  if not record.relied or record.relied.till < till then
    record.relied, name.dirty = { till = till, id = record.holder and record.holder.id }, true
  end
end

-- Forgets the replaced holds when no client relies on them any more.
local function forget_replaced(name)
  local relied = name.record.relied
  if relied and relied.till <= math.floor(now_us / 1000) then
    name.record.relied, name.dirty = nil, true
  end
end

-- For how long the lock key lasts, in ms. If another program removed its expiry, the time that the record knows.
local function lock_life(name)
  local left = call('PTTL', name.lock)
  return left == -1 and call('PTTL', name.record_key) - ENDED_LIFE or left
end

