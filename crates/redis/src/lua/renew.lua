-- Extends holds. Comes before renew_each.lua, which answers each renewal separately, and before downgrade.lua.
--
-- KEYS 2.. a lock for each hold
-- ARGV for each hold: side, <id>.<token>, ttl ms
-- Answers {server time in us, then for each hold one of:
--   extended <ms for which the hold would have lasted; -1: for ever> · extended, if that is not known
--   gone · overwritten: a foreign value is under the lock key · early: the lock key ended, and the record says that the
--   claim holds · broken · layout, or the server's error}.
-- Invariant: id and token are compared; a renewal creates nothing and never shortens a hold.

-- Whether the record says that the claim holds, whatever is under the lock key.
local function is_recorded(name, id)
  if name.record.mode == 'x' then
    return name.record.holder.id == id and name.record.holder.state ~= 'kept'
  end
  return name.record.mode and tonumber(call('ZSCORE', name.holds, id) or 0) > now_ms
end

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
  local was_recorded = not value and is_recorded(name, id)
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
    local left = time_left(name, id)
    confirm(name, id, ttl)
    reply = left and 'extended ' .. int(left) or reply
  elseif is_overwritten(name) then
    reply = 'overwritten'
  elseif reply == 'gone' and was_recorded then
    reply = 'early'
  end
  settle(name)
  save(name, ttl)
  return reply
end
