-- Extends locks; sets a missing lock again, if `again` is 1.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<token> <ttl ms> <again> <quarantine ms>"
--   again    1: a majority has the lock elsewhere, so a missing one is set again
-- Answers "extended <us> <us since born>", "missing", "young" (missing, and the node may have forgotten it), "gone"
-- (another claim's, another token, or dead) or "broken".
local has = age()
if not has then
  call('SET', BORN, int(us) .. ' 0')
  has = 0
end

local function one(lock, side, id, text)
  local token, ttl, again, quarantine = text:match('^(%d+) (%d+) (%d) (%d+)$')
  token = tonumber(token)
  local value, key = value_under(lock), side .. 'T' .. lock
  local t = read(call('GET', key))
  if is_of(value, id) then
    if t.id == id and t.first ~= token then
      return 'gone'
    end
    call('PEXPIRE', lock, ttl)
    return 'extended ' .. int(us) .. ' ' .. int(has)
  elseif value == 'broken-' .. id or t.id == id and t.ended == 'b' then
    return 'broken'
  elseif value or has_tombstone(side .. 'D' .. lock, id) then
    return 'gone'
  elseif again == '0' then
    return is_young(quarantine) and 'young' or 'missing'
  end
  if not call('SET', lock, id .. '-0', 'NX', 'PX', ttl) then
    return 'gone'
  end
  mint(key, t, token, 1, id, t.id == id and t.owner or '?')
  return 'extended ' .. int(us) .. ' ' .. int(has)
end

return each(3, one)
