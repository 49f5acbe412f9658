-- Shows the state of a name on this node. Writes nothing.
--
-- KEYS[1] lock · ARGV 1 side
-- Answers {server time in us, value or "", ms left, the newest token's text or "", waiters: id and the rest in turn,
-- for how long the node has had its data in us, or -1}.
local lock, side = KEYS[1], ARGV[1]
local waiters = {}
for _, id in ipairs(call('ZRANGE', side .. 'W' .. lock, 0, MAX_WAITERS)) do
  waiters[#waiters + 1] = id
  waiters[#waiters + 1] = call('HGET', side .. 'V' .. lock, id) or ''
end
return { now_us, value_under(lock) or '', call('PTTL', lock), call('GET', side .. 'T' .. lock) or '', waiters,
  age() or -1 }
