-- Wakes waiters of another program after the lock became free, as a release of that program does. The other programs
-- have no queue, so it does not matter which waiter wakes: one is enough. Returns false if the wake-up failed,
-- otherwise true. `wake_words`: the words in which the client says which program to wake.
local function wake_waiters(name, wake_words)
  local kind, registry = wake_words:match('^(%l*) ?(.*)$')
  local lock_name, steps = name.lock:sub(#'lock:' + 1), {}
  if kind == 'prl' then
    local signal = 'lock-signal:' .. lock_name
    steps = { { 'DEL', signal }, { 'LPUSH', signal, '1' }, { 'PEXPIRE', signal, '1000' } }
  elseif kind == 'walrus' then
    -- The releases of walrus set no expiry. Ours do: an event that no waiter uses then does not wake a waiter much
    -- later.
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

