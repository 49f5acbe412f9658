-- Wakes the waiters of Redisson after the lock became free, as a release of each kind of Redisson's locks does. Returns
-- false if a wake-up failed, otherwise true. In a cluster, clients of Redisson may listen to a channel of the slot
-- (sharded), or to a channel of all servers: `wake_words` is 'redisson s' in a cluster, else 'redisson'.
local function wake_waiters(name, wake_words)
  local all_sent, lock_channel = true, prefixed('redisson_lock__channel', name.lock)
  local function send(channel, message)
    local result = redis.pcall('PUBLISH', channel, message)
    all_sent = all_sent and type(result) == 'number'
    if wake_words == 'redisson s' then
      redis.pcall('SPUBLISH', channel, message) -- servers before 7.0, and their clients, have no such channels
    end
  end
  send(lock_channel, '0')
  send(prefixed('redisson_rwlock', name.lock), '1')
  local first = fair_queue(name.lock)[1]
  if first and first[1] ~= OUR_ENTRY then
    send(lock_channel .. ':' .. first[1], '0')
  end
  return all_sent
end

