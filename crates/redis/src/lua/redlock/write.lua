-- Writes the tokens of claims that have the lock on this node.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<attempt> <first> <tokens> <owner>"
-- Answers "<word> <us> <newest token>": "written"; "raced", if the newest token here is as large or larger; "lost", if
-- that attempt does not have the lock.
local function write_item(lock, side, id, text)
  local attempt, first, tokens, owner = text:match('^(%d+) (%d+) (%d+) (.*)$')
  local token_key = side .. 'T' .. lock
  local block, word = read_block(call('GET', token_key)), 'lost'
  if value_under(lock) == id .. '-' .. attempt then
    word = write_block(token_key, block, tonumber(first), tonumber(tokens), id, owner) and 'written' or 'raced'
  end
  return word .. ' ' .. int(now_us) .. ' ' .. int(block.last)
end

return answer_items(3, write_item)
