-- Raises the fence of a resource to a token, and does what the token's holder wants to write, unless a larger token raised it.
--
-- KEYS 2 fence, after the counter
-- ARGV 1 token, then for each command: how many words, its words; and last of all what every script is told
-- Answers {server us, 1, what the server says to each command} or {server us, 0, the larger token}.
-- Invariant: what comes with a smaller token than the fence changes nothing. The fence does not expire: a holder that was
-- overtaken may come back at any time.
local clock = redis.call('TIME')
local answers = { clock[1] * 1000000 + clock[2], 1 }
local seen, token = redis.call('GET', KEYS[2]) or '0', ARGV[1]
if tonumber(seen) > tonumber(token) then
  return { answers[1], 0, seen }
end
if seen ~= token then
  redis.call('SET', KEYS[2], token)
end
local at = 2
while at < #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return answers
