-- Writes the token of claims that have locked this node.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<attempt> <first> <tokens> <owner>"
-- Answers "<word> <us> <newest token>": "written"; "raced", if the present token is as large; "lost", if that attempt
-- does not have the lock.
local function one(lock, side, id, text)
  local attempt, first, tokens, owner = text:match('^(%d+) (%d+) (%d+) (.*)$')
  local key = side .. 'T' .. lock
  local t, word = read(call('GET', key)), 'lost'
  if value_under(lock) == id .. '-' .. attempt then
    word = mint(key, t, tonumber(first), tonumber(tokens), id, owner) and 'written' or 'raced'
  end
  return word .. ' ' .. int(us) .. ' ' .. int(t.last)
end

return each(3, one)
