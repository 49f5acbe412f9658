-- Extends holds. Each renewal is answered separately: an error of one does not stop the others.
--
-- KEYS 2.. a lock for each hold
-- ARGV for each hold: side, <id>.<token>, ttl ms
-- Answers {server time in us, then for each hold: extended, gone, broken, layout, or the server's error}.
-- Invariant: id and token are compared; a renewal creates nothing and never shortens a hold.
local function renew_item(i)
  local expected, ttl = ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  local id, token = expected:match('^(%x+)%.(%d+)$')
  requester = id
  local name = load(KEYS[i + 1], ARGV[3 * i - 2])
  if not name then
    return 'layout'
  end
  local value = name.value
  if value == expected .. '!' then
    return 'broken'
  end
  begin_writes(name)
  prune(name)
  local holder
  if name.record.mode == 'x' then
    holder = (value == expected or value == expected .. '?') and name.record.holder
  elseif name.record.mode and call('ZSCORE', name.holds, id) then
    holder = read_entry(name, id)
  end
  local reply = 'gone'
  if holder and int(holder.token) == token then
    reply = holder.state == '!' and 'broken' or 'extended'
  end
  if reply == 'extended' then
    confirm(name, id, ttl)
  end
  settle(name)
  save(name, ttl)
  return reply
end

return answer_items(renew_item)
