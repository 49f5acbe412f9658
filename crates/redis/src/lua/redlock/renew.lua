-- Extends locks, and never shortens them; sets a missing lock again, if `set_again` is 1.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<token> <ttl ms> <set again> <quarantine ms>"
--   set again  1: a majority has the lock elsewhere, so a missing one is set again
-- Answers "extended <us> <us since born>", "missing", "young" (missing, and the node may have forgotten it), "gone"
-- (another claim has the lock, another token is written, or the claim has ended) or "broken".
local data_age = age()
if not data_age then
  call('SET', BORN, int(now_us) .. ' 0')
  data_age = 0
end

-- Answers one renewal.
local function renew_item(lock, side, id, text)
  local token, ttl, set_again, quarantine = text:match('^(%d+) (%d+) (%d) (%d+)$')
  token = tonumber(token)
  local value, token_key = value_under(lock), side .. 'T' .. lock
  local block = read_block(call('GET', token_key))
  if is_of(value, id) then
    if block.id == id and block.first ~= token then
      return 'gone'
    end
    -- A shorter renewal may arrive after a longer one.
    if call('PTTL', lock) < tonumber(ttl) then
      call('PEXPIRE', lock, ttl)
    end
    return 'extended ' .. int(now_us) .. ' ' .. int(data_age)
  elseif value == 'broken-' .. id or block.id == id and block.ended == 'b' then
    return 'broken'
  elseif value or has_tombstone(side .. 'D' .. lock, id) then
    return 'gone'
  elseif set_again == '0' then
    return is_young(quarantine) and 'young' or 'missing'
  end
  if not call('SET', lock, id .. '-0', 'NX', 'PX', ttl) then
    return 'gone'
  end
  write_block(token_key, block, token, 1, id, block.id == id and block.owner or '?')
  return 'extended ' .. int(now_us) .. ' ' .. int(data_age)
end

return answer_items(3, renew_item)
