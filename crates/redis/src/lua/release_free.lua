-- Ends exclusive holds of names without waiters, on one server, if the hold ended cleanly: most releases.
--
-- KEYS 1 counter, which is not used
-- ARGV, answers and invariant as in release_node.lua
-- Each text has the tag (4 letters), <id>.<token>, a blank and the lock: the blank is at byte 38 or later.
local call, sub, find = redis.call, string.sub, string.find

if #ARGV == 1 then
  local text = ARGV[1]
  local blank = find(text, ' ', 38, true)
  local tag, expected, lock = sub(text, 1, 4), sub(text, 5, blank - 1), sub(text, blank + 1)
  local done, reply = pcall(function()
    -- Reads no more bytes than the longest of our strings has (4096), like all_values() in head.lua.
    if call('GETRANGE', lock, '0', '4095') ~= expected or call('EXISTS', 'leasehold:{' .. tag .. '}q' .. lock) == 1 then
      return '0 0'
    end
    call('DEL', lock, 'leasehold:{' .. tag .. '}c' .. lock)
    return '0 1'
  end)
  return done and reply or '0 0'
end

local answers, locks, expected, queues, records = { '0' }, {}, {}, {}, {}

for i = 1, #ARGV do
  local text = ARGV[i]
  local blank = find(text, ' ', 38, true)
  local tag, lock = sub(text, 1, 4), sub(text, blank + 1)
  locks[i], expected[i], answers[i + 1] = lock, sub(text, 5, blank - 1), '0'
  queues[i], records[i] = 'leasehold:{' .. tag .. '}q' .. lock, 'leasehold:{' .. tag .. '}c' .. lock
end

-- Deletes all locks that have the expected value and no waiters.
local function release()
  local values = call('MGET', unpack(locks))
  local no_waiters = call('EXISTS', unpack(queues)) == 0
  local freed, keys, n = {}, {}, 0
  for i = 1, #locks do
    if values[i] == expected[i] and (no_waiters or call('EXISTS', queues[i]) == 0) then
      n = n + 1
      freed[n], keys[2 * n - 1], keys[2 * n] = i, locks[i], records[i]
    end
  end
  if n > 0 then
    call('DEL', unpack(keys))
    for i = 1, n do
      answers[freed[i] + 1] = '1'
    end
  end
end

pcall(release)
return table.concat(answers, ' ')
