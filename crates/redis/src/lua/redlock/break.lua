-- Ends the hold with this token on this node, for an operator.
--
-- KEYS[1] lock · ARGV 1 side · 2 token · 3 "1" to free the name at once; else the name stays taken until the lease ends
-- Answers {server time in us, "done" or "absent"}.
local lock, side, token = KEYS[1], ARGV[1], tonumber(ARGV[2])
local token_key, value = side .. 'T' .. lock, value_under(KEYS[1])
local block = read_block(call('GET', token_key))
if block.id == '' or token < block.first or token > block.last
  or not is_of(value, block.id) and value ~= 'broken-' .. block.id
then
  return { now_us, 'absent' }
end
block.ended = 'b'
put_block(token_key, block)
if ARGV[3] == '1' then
  call('DEL', lock)
  add_tombstone(side .. 'D' .. lock, block.id)
  notify_waiters(side, lock)
else
  call('SET', lock, 'broken-' .. block.id, 'KEEPTTL')
end
return { now_us, 'done' }
