-- Begins or ends notifications of a client about the memo of a name, or notifies all clients that get them.
--
-- KEYS 1 lock
-- ARGV 1 side · 2 channel · 3 add, remove or notify
-- Answers {server time in us, done}.
local side, channel, action = ARGV[1], ARGV[2], ARGV[3]
local followers, now_ms = side .. 'o' .. KEYS[1], math.floor(now_us / 1000)
if action == 'notify' then
  notify_followers(side, KEYS[1])
elseif action == 'remove' then
  call('ZREM', followers, channel)
else
  for _, gone in ipairs(call('ZRANGEBYSCORE', followers, '-inf', int(now_ms), 'LIMIT', 0, MAX_FOLLOWERS)) do
    call('ZREM', followers, gone)
  end
  call('ZADD', followers, int(now_ms + FOLLOW_LIFE), channel)
  outlive(followers, FOLLOW_LIFE)
end
return { now_us, 'done' }
