-- Ends exclusive holds that ended cleanly: frees the name, or grants it to the head of the queue if that waiter is
-- stored as words and its client listens. These are most releases. Comes before name.lua and release.lua, which handle
-- every other case. It is a separate file, because defining the functions of those files takes longer than this whole
-- file.

-- The words of a release: the hold ended cleanly (c); no minimum hold time (0), no tombstone (0), and the usual gap
-- (a).
local AUTOMATIC = 'c 0 0 a'
local WITHOUT_GAP = 'c 0 0 0'

-- Grants to the head of the queue, like settle(); or frees the name, if there is no queue. Returns nil, and changes
-- nothing, if the full script must handle the release: for example because another program was seen under the lock, so
-- that a gap may be due: see leave_gap() in release.lua. `value`: the value of the lock.
local function hand_over(i, value)
  local lock, side, expected = KEYS[i + 1], ARGV[3 * i - 2], ARGV[3 * i - 1]
  local is_unconfirmed = value == expected .. '?' -- a pushed grant that is not confirmed
  if not is_unconfirmed and value ~= expected then
    return nil
  end
  local record, queue = side .. 'c' .. lock, side .. 'q' .. lock
  local entries, entry_ends = side .. 'e' .. lock, side .. 'z' .. lock
  local head = call('ZRANGE', queue, 0, 0)[1]
  if not head then
    call('DEL', lock, record)
    if is_unconfirmed then
      call('HDEL', entries, expected:sub(1, 32))
      call('ZREM', entry_ends, expected:sub(1, 32))
    end
    return 'freed'
  end
  local claim, tokens, channel, owner = (call('HGET', entries, head) or ''):match('^1 %d+ (%d+) (%d+) (%S+) (.*)$')
  local ends_at = tonumber(call('ZSCORE', entry_ends, head) or 0)
  if not owner or ends_at <= now_us / 1000 or ARGV[3 * i] == AUTOMATIC and call('EXISTS', side .. 's' .. lock) == 1 then
    return nil
  end
  local newest, one_each = next_tokens(tonumber(tokens), 1)
  if not newest then
    return nil
  elseif one_each then
    tokens = '1'
  end
  local token = int(newest - tokens + 1)
  local notification = { 'granted', head, token, tokens, claim, int(now_us), 'c', lock }
  local listeners = publish(channel, table.concat(notification, ' '))
  if type(listeners) ~= 'number' or listeners == 0 and not all_may_listen() then
    return nil
  end
  call('ZREM', queue, head)
  if is_unconfirmed then
    call('HDEL', entries, expected:sub(1, 32))
    call('ZREM', entry_ends, expected:sub(1, 32))
  end
  call('SET', lock, head .. '.' .. token .. '?', 'PX', claim)
  call('SET', record, '1 ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. token .. ' ' .. tokens .. ' ' .. head .. ' ? '
    .. channel .. ' ' .. owner, 'PX', int(claim + ENDED_LIFE))
  return 'freed'
end

-- Frees all names without waiters together, and hands over the others; leaves `answers` empty for all other releases.
local function fast_path()
  local values, freed, keys = all_values(), {}, {}
  local no_waiters = false
  if #values > 1 then
    local queues = {}
    for i = 1, #values do
      queues[i] = ARGV[3 * i - 2] .. 'q' .. KEYS[i + 1]
    end
    no_waiters = call('EXISTS', unpack(queues)) == 0
  end
  for i, value in ipairs(values) do
    local lock, n = KEYS[i + 1], #freed
    if ARGV[3 * i] ~= AUTOMATIC and ARGV[3 * i] ~= WITHOUT_GAP then
      -- left to the full script
    elseif no_waiters and value == ARGV[3 * i - 1] then
      freed[n + 1], keys[2 * n + 1], keys[2 * n + 2] = i, lock, ARGV[3 * i - 2] .. 'c' .. lock
    else
      if #values > 1 then
        value = string_at(lock, redis.pcall) -- an earlier item may have changed it
      end
      answers[i + 1] = hand_over(i, value)
    end
  end
  if #freed > 0 then
    call('DEL', unpack(keys))
    for _, i in ipairs(freed) do
      answers[i + 1] = 'freed'
    end
  end
end
