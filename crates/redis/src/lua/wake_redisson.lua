-- The lock is free: wakes its waiters, as the release of each kind of Redisson's locks does. False if that failed. In a
-- cluster clients may listen by the slot or by all servers: `wake` is 'redisson s' there, else 'redisson'.
local function ring(s, wake)
  local rung, lock = true, prefixed('redisson_lock__channel', s.lock)
  local function tell(channel, message)
    local said = redis.pcall('PUBLISH', channel, message)
    rung = rung and type(said) == 'number'
    if wake == 'redisson s' then
      redis.pcall('SPUBLISH', channel, message) -- servers before 7.0, and their clients, have no such channels
    end
  end
  tell(lock, '0')
  tell(prefixed('redisson_rwlock', s.lock), '1')
  local first = fair_line(s.lock)[1]
  if first and first[1] ~= OURS then
    tell(lock .. ':' .. first[1], '0')
  end
  return rung
end

