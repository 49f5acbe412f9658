-- Shows the holders and the waiters of a name. Writes nothing.
--
-- KEYS 2 lock
-- ARGV 1 side
-- Answers {server us, seen, server us, holders, waiters} or {server us, layout}; a holder is {id, mode, count, limit,
-- token, since us, remaining ms, owner, state}, with the state foreign for another program; a waiter is {id, owner,
-- since us}, or {id, owner, 0} for another program.
local s = load(KEYS[2], ARGV[1])
if not s then
  return { us, 'layout' }
end
local c, holders, waiters = s.c, {}, {}

local SHOWN = 1024 -- the shown part of each text that others may have written, in bytes

local function show(id, h, mode, remaining)
  if h.state ~= 'kept' or remaining > 0 then
    table.insert(holders, {
      id, mode, h.count or 1, h.limit or 0, h.token, h.since, remaining, h.owner:sub(1, SHOWN), h.state,
    })
  end
end

local ours = c.mode and s.value == (c.mode == 'x' and value_of(c.holder) or 'shared.' .. (c.nonce or ''))
if ours and c.mode == 'x' then
  show(c.holder.id, c.holder, 'x', call('PTTL', s.lock))
elseif ours then
  local ends = call('ZRANGE', s.holds, 0, MAX_HOLDERS - 1, 'WITHSCORES')
  for at = 1, #ends, 2 do
    local h, remaining = entry(s, ends[at]), tonumber(ends[at + 1]) - now
    if remaining > 0 then
      h.since = h.granted
      show(ends[at], h, h.mode, remaining)
    end
  end
end

for _, row in ipairs(foreign_holders(s, ours)) do
  local id, mode, remaining, owner = unpack(row)
  table.insert(holders, { id:sub(1, SHOWN), mode, 1, 0, 0, 0, remaining, owner, 'foreign' })
end

for _, id in ipairs(foreign_waiters(s)) do
  table.insert(waiters, { id:sub(1, SHOWN), 'Redisson', 0 })
end

local function wait(id)
  local e, till = entry(s, id), call('ZSCORE', s.entry_ends, id)
  if e and till and tonumber(till) > now then
    table.insert(waiters, { id, e.owner:sub(1, SHOWN), e.since })
  end
end

local queue = call('ZRANGE', s.queue, 0, MAX_WAITERS - 1)
local queued = {}
for _, id in ipairs(queue) do
  queued[id] = true
  wait(id)
end
-- After the queue, the claims that missed their grant.
for _, id in ipairs(call('ZRANGE', s.entry_ends, 0, MAX_WAITERS - 1)) do
  local e = not queued[id] and entry(s, id)
  if e and e.state == 'silent' then
    wait(id)
  end
end
return { us, 'seen', us, holders, waiters }
