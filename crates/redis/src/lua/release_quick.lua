-- Ends exclusive holds that ended well: frees the name, or grants it to the head of the queue if that waiter is stored
-- as words and listens: most releases. Precedes name.lua and release.lua, which handle every other case; separate,
-- because defining their functions costs more than this.

-- The words of a release that ended well (c), without a minimum hold time (0) and tombstone (0), with the usual gap
-- (a).
local AUTOMATIC = 'c 0 0 a'
local WITHOUT_GAP = 'c 0 0 0'

-- Grants to the head of the queue, like settle(); or frees the name, if there is no queue. Returns nil, and changes
-- nothing, if the whole script must do it: for example if another program was seen that may get a gap: see leave_gap()
-- in release.lua. `value`: the value of the lock.
local function hand_over(at, value)
  local lock, side, mine = KEYS[at + 1], ARGV[3 * at - 2], ARGV[3 * at - 1]
  local pushed = value == mine .. '?' -- a pushed grant that is not confirmed
  if not pushed and value ~= mine then
    return nil
  end
  local record, queue = side .. 'c' .. lock, side .. 'q' .. lock
  local entries, entry_ends = side .. 'e' .. lock, side .. 'z' .. lock
  local first = call('ZRANGE', queue, 0, 0)[1]
  if not first then
    call('DEL', lock, record)
    if pushed then
      call('HDEL', entries, mine:sub(1, 32))
      call('ZREM', entry_ends, mine:sub(1, 32))
    end
    return 'freed'
  end
  local claim, tokens, channel, owner = (call('HGET', entries, first) or ''):match('^1 %d+ (%d+) (%d+) (%S+) (.*)$')
  local till = tonumber(call('ZSCORE', entry_ends, first) or 0)
  if not owner or till <= us / 1000 or ARGV[3 * at] == AUTOMATIC and call('EXISTS', side .. 's' .. lock) == 1 then
    return nil
  end
  local newest, single = next_tokens(tonumber(tokens), 1)
  if not newest then
    return nil
  elseif single then
    tokens = '1'
  end
  local token = int(newest - tokens + 1)
  local notification = { 'granted', first, token, tokens, claim, int(us), 'c', lock }
  local listeners = publish(channel, table.concat(notification, ' '))
  if type(listeners) ~= 'number' or listeners == 0 and not all_may_listen() then
    return nil
  end
  call('ZREM', queue, first)
  if pushed then
    call('HDEL', entries, mine:sub(1, 32))
    call('ZREM', entry_ends, mine:sub(1, 32))
  end
  call('SET', lock, first .. '.' .. token .. '?', 'PX', claim)
  call('SET', record, '1 ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. token .. ' ' .. tokens .. ' ' .. first .. ' ? '
    .. channel .. ' ' .. owner, 'PX', int(claim + ENDED_LIFE))
  return 'freed'
end

local function fast_path()
  local values, freed, keys = all_values(), {}, {}
  local no_waiters = false
  if #values > 1 then
    local queues = {}
    for at = 1, #values do
      queues[at] = ARGV[3 * at - 2] .. 'q' .. KEYS[at + 1]
    end
    no_waiters = call('EXISTS', unpack(queues)) == 0
  end
  for at, value in ipairs(values) do
    local lock, n = KEYS[at + 1], #freed
    if ARGV[3 * at] ~= AUTOMATIC and ARGV[3 * at] ~= WITHOUT_GAP then
      -- left to the whole script
    elseif no_waiters and value == ARGV[3 * at - 1] then
      freed[n + 1], keys[2 * n + 1], keys[2 * n + 2] = at, lock, ARGV[3 * at - 2] .. 'c' .. lock
    else
      if #values > 1 then
        value = string_at(lock, redis.pcall) -- another item may have changed it
      end
      answers[at + 1] = hand_over(at, value)
    end
  end
  if #freed > 0 then
    call('DEL', unpack(keys))
    for _, at in ipairs(freed) do
      answers[at + 1] = 'freed'
    end
  end
end
