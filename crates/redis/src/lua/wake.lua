-- Wakes waiters of another program, as the release of that program does, after the lock became free. The other programs
-- have no queue: waking one waiter is enough. False if the wake-up failed. `wake_words`: its description from the
-- client.
local function wake_waiters(name, wake_words)
  local kind, registry = wake_words:match('^(%l*) ?(.*)$')
  local lock_name, steps = name.lock:sub(#'lock:' + 1), {}
  if kind == 'prl' then
    local signal = 'lock-signal:' .. lock_name
    steps = { { 'DEL', signal }, { 'LPUSH', signal, '1' }, { 'PEXPIRE', signal, '1000' } }
  elseif kind == 'walrus' then
    -- The releases of walrus set no expiry. With an expiry, an unused event wakes no later waiter.
    local event = 'lock.event:' .. lock_name
    steps = { { 'LPUSH', event, '1' }, { 'LTRIM', event, '0', '0' }, { 'PEXPIRE', event, int(ENDED_LIFE) } }
  elseif kind == 'spring' then
    steps = { { 'PUBLISH', registry .. '-channel:' .. name.lock, name.lock } }
  end
  for _, step in ipairs(steps) do
    local result = redis.pcall(unpack(step))
    if type(result) == 'table' and result.err then
      return false
    end
  end
  return true
end

