-- Extends holds. Each is answered separately: an error of one does not stop the others.
--
-- KEYS 2.. a lock for each hold
-- ARGV for each hold: side, <id>.<token>, ttl ms
-- Answers {server us, then for each hold: extended, gone, broken, layout, or the server's error}.
-- Invariant: id and token are compared; a renewal creates nothing and never shortens a hold.
local function one(at)
  local mine, ttl = ARGV[3 * at - 1], tonumber(ARGV[3 * at])
  local id, token = mine:match('^(%x+)%.(%d+)$')
  requester = id
  local s = load(KEYS[at + 1], ARGV[3 * at - 2])
  if not s then
    return 'layout'
  end
  local value = s.value
  if value == mine .. '!' then
    return 'broken'
  end
  arm(s)
  prune(s)
  local h
  if s.c.mode == 'x' then
    h = (value == mine or value == mine .. '?') and s.c.holder
  elseif s.c.mode and call('ZSCORE', s.holds, id) then
    h = entry(s, id)
  end
  local reply = 'gone'
  if h and int(h.token) == token then
    reply = h.state == '!' and 'broken' or 'extended'
  end
  if reply == 'extended' then
    confirm(s, id, ttl)
  end
  settle(s)
  save(s, ttl)
  return reply
end

return each(one)
