-- Ends the hold with this token on this node, for an operator.
--
-- KEYS[1] lock · ARGV 1 side · 2 token · 3 "1" to free the name at once; else it stays taken until the lease ends
-- Answers {server us, "done" or "absent"}.
local lock, side, token = KEYS[1], ARGV[1], tonumber(ARGV[2])
local key, value = side .. 'T' .. lock, value_under(KEYS[1])
local t = read(call('GET', key))
if t.id == '' or token < t.first or token > t.last or not is_of(value, t.id) and value ~= 'broken-' .. t.id then
  return { us, 'absent' }
end
t.ended = 'b'
put(key, t)
if ARGV[3] == '1' then
  call('DEL', lock)
  add_tombstone(side .. 'D' .. lock, t.id)
  notify_waiters(side, lock)
else
  call('SET', lock, 'broken-' .. t.id, 'KEEPTTL')
end
return { us, 'done' }
