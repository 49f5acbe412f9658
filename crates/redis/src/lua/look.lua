-- Shows the holders and the waiters of a name. Writes nothing.
--
-- KEYS 2 lock
-- ARGV 1 side
-- Answers {server time in us, seen, server time in us, holders, waiters} or {server time in us, layout}; a holder is
-- {id, mode, count, limit, token, since us, remaining ms, owner, state}, with the state foreign for another program,
-- "stale <ms>" if its value is a time that has been over for so long, see stale.lua, or "no lock" if it is no lock; a
-- waiter is {id, owner, since us, mode, count, limit}, or {id, owner, 0, '', 0, 0} for another program. A hold whose
-- record or entry somebody deleted has the owner '' and the time 0, and without an entry the token 0.
local name = load(KEYS[2], ARGV[1])
if not name then
  return { now_us, 'layout' }
end
local record, holders, waiters = name.record, {}, {}

local SHOWN_BYTES = 1024 -- the shown part of each text that others may have written, in bytes

-- Adds a holder to the answer; a minimum hold time that is over is left out.
local function show_holder(id, holder, mode, remaining)
  if holder.state ~= 'kept' or remaining > 0 then
    table.insert(holders, {
      id, mode, holder.count or 1, holder.limit or 0, holder.token, holder.since, remaining,
      holder.owner:sub(1, SHOWN_BYTES), holder.state,
    })
  end
end

-- A shared hold or permits whose entry somebody deleted.
local no_entry = {
  token = 0, granted = 0, owner = '', state = '', mode = record.mode, count = 1, limit = record.limit,
}
-- Whether the value of the lock is one of our holds.
local is_ours = record.mode
  and name.value == (record.mode == 'x' and value_of(record.holder) or 'shared.' .. (record.nonce or ''))
if is_ours and record.mode == 'x' then
  if not name.has_record then
    record.holder.since = 0
  end
  show_holder(record.holder.id, record.holder, 'x', call('PTTL', name.lock))
elseif is_ours then
  local ends = call('ZRANGE', name.holds, 0, MAX_HOLDERS - 1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local holder, remaining = read_entry(name, ends[i]) or no_entry, tonumber(ends[i + 1]) - now_ms
    if remaining > 0 then
      holder.since = holder.granted
      show_holder(ends[i], holder, holder.mode, remaining)
    end
  end
end

for _, row in ipairs(foreign_holders(name, is_ours)) do
  local id, mode, remaining, owner = unpack(row)
  local over = overdue(name)
  local state = over and 'stale ' .. int(over) or 'foreign'
  if name.is_no_lock and not is_other_layout(name) and remaining == -1 then
    state = 'no lock' -- probably no lock at all: claims are refused, see one_claim.lua
  end
  table.insert(holders, { id:sub(1, SHOWN_BYTES), mode, 1, 0, 0, 0, remaining, owner, state })
end

for _, id in ipairs(foreign_waiters(name)) do
  table.insert(waiters, { id:sub(1, SHOWN_BYTES), 'Redisson', 0, '', 0, 0 })
end

-- Adds a waiter to the answer, if its queue entry has not ended.
local function show_waiter(id)
  local entry, ends_at = read_entry(name, id), call('ZSCORE', name.entry_ends, id)
  if entry and ends_at and tonumber(ends_at) > now_ms then
    table.insert(waiters, {
      id, entry.owner:sub(1, SHOWN_BYTES), entry.since, entry.mode, entry.count or 1, entry.limit or 0,
    })
  end
end

local queue = call('ZRANGE', name.queue, 0, MAX_WAITERS - 1)
local queued = {}
for _, id in ipairs(queue) do
  queued[id] = true
  show_waiter(id)
end
-- After the queue, the claims that missed their grant.
for _, id in ipairs(call('ZRANGE', name.entry_ends, 0, MAX_WAITERS - 1)) do
  local entry = not queued[id] and read_entry(name, id)
  if entry and entry.state == 'silent' then
    show_waiter(id)
  end
end
return { now_us, 'seen', now_us, holders, waiters }
