-- Makes an exclusive hold shared, and extends it. Comes after renew.lua.
--
-- KEYS 2 lock
-- ARGV as in renew.lua, for one hold
-- Answers as renew.lua, for one hold; extended: the hold is shared.
-- Invariant: no other claim holds the name exclusively between; the token stays. A hold that is shared already is only
-- extended.

-- Stores the exclusive holder as the only shared hold, for at least `ttl` ms. For later grants it ended cleanly: its
-- client goes on to read what it has written.
local function share(name, ttl)
  local holder = name.record.holder
  local hold_ms = math.max(ttl, call('PTTL', name.lock))
  note_end(name, holder.token, 'c')
  name.record.mode, name.record.holder = nil, nil
  grant(name, holder.id, {
    mode = 's', count = 1, limit = 0, claim = 0, tokens = holder.tokens, channel = holder.channel, owner = holder.owner,
    since = holder.since,
  }, holder.token, hold_ms, '')
end

local function downgrade_item(i)
  local reply, ttl = renew_item(i), tonumber(ARGV[3 * i])
  local name = reply:sub(1, 8) == 'extended' and load(KEYS[i + 1], ARGV[3 * i - 2])
  if name and name.record.mode == 'x' then
    share(name, ttl)
    settle(name)
    save(name, ttl)
  end
  return reply
end

return answer_items(downgrade_item)
