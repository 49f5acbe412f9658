-- Raises the fence of a resource to a token and runs the commands of the token's holder, unless the fence is at a
-- larger token already.
--
-- KEYS 2 fence, after the counter
-- ARGV 1 token, then for each command: its number of words, its words; and at the end the argument of every script
-- Answers {server time in us, 1, the reply to each command} or {server us, 0, the larger token}.
-- Invariant: a token that is smaller than that of the fence changes nothing. The fence does not expire: a holder with a
-- smaller token may try to write at any later time.
local clock = redis.call('TIME')
local answers = { clock[1] * 1000000 + clock[2], 1 }
local largest, token = redis.call('GET', KEYS[2]) or '0', ARGV[1]
if tonumber(largest) > tonumber(token) then
  return { answers[1], 0, largest }
end
if largest ~= token then
  redis.call('SET', KEYS[2], token)
end
local i = 2
while i < #ARGV do
  local words = tonumber(ARGV[i])
  answers[#answers + 1] = redis.call(unpack(ARGV, i + 1, i + words))
  i = i + words + 1
end
return answers
