-- The clients that follow the memo of a name. Comes after head.lua.
--
--   <side>o<lock>    ZSET    channel of each client -> until when it follows, in server ms
local FOLLOW_LIFE = 30000  -- how long a client is notified after its last request to follow, in ms
local MAX_FOLLOWERS = 1024 -- so many clients are notified at most; the others find changes when they poll

-- Notifies the clients that follow the memo. Notifications are hints, so an error here is no error of the request.
local function notify_followers(side, lock)
  pcall(function()
    local now_ms = int(math.floor(now_us / 1000))
    for _, channel in ipairs(call('ZRANGEBYSCORE', side .. 'o' .. lock, now_ms, '+inf', 'LIMIT', 0, MAX_FOLLOWERS)) do
      publish(channel, 'memo ' .. lock)
    end
  end)
end
