-- Ends claims on this node.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<attempt> <token> <how it ended> <tombstone> <quarantine ms>"
--   attempt  "any", or the only attempt whose lock is to be removed
--   token    0 if it is unknown whether the claim holds
--   tombstone  1: an earlier request of the claim may still arrive
-- Answers "freed", "other" (the claim had the lock, but another token is written for the claim), "absent", or "young"
-- (absent, and the node may have forgotten the lock).
local function release_item(lock, side, id, text)
  local attempt, token, end_letter, tombstone, quarantine = text:match('^(%S+) (%d+) (%l) (%d) (%d+)$')
  token = tonumber(token)
  local value, word, waited = value_under(lock), 'absent', true
  local is_ours = attempt == 'any' and (is_of(value, id) or value == 'broken-' .. id)
  if is_ours or value == id .. '-' .. attempt then
    local token_key = side .. 'T' .. lock
    local block = read_block(call('GET', token_key))
    call('DEL', lock)
    -- If a late or repeated request set the lock, the token of the claim may be missing here.
    word = token ~= 0 and block.id == id and block.first ~= token and 'other' or 'freed'
    if block.id == id and block.ended == '-' then
      block.ended = token ~= 0 and block.first == token and end_letter or block.before
      put_block(token_key, block)
    end
    waited = notify_waiters(side, lock)
  end
  if waited and attempt == 'any' then
    forget(side, lock, id)
  end
  if tombstone == '1' then
    add_tombstone(side .. 'D' .. lock, id)
  end
  return word == 'absent' and not value and is_young(quarantine) and 'young' or word
end

return answer_items(3, release_item)
