-- Claims free names without waiters, and enqueues claims of names that one of our claims holds alone: most claims.
-- Comes before name.lua and claim.lua, which handle every other case. It is a separate file, because defining the
-- functions of those files takes longer than this whole file.

-- Enqueues the claim with this number, if one of our claims holds the name and the record is in words. Returns the
-- answer; nil if the full script must handle the claim.
local function enqueue_behind(i, record)
  local request, lock, side, id = request_of(i), KEYS[i + 1], ARGV[3 * i - 2], ARGV[3 * i - 1]
  local words = string_at(record, call) or ''
  local token, holder = words:match('^1 %d+ %d+ (%d+) %d+ (%x+) ')
  local hold = holder and holder ~= id and holder .. '.' .. token
  local value = request.may_queue == '1' and hold and string_at(lock, redis.pcall)
  if not value or value ~= hold and value ~= hold .. '?' then
    return nil
  end
  local queue, entries, entry_ends = side .. 'q' .. lock, side .. 'e' .. lock, side .. 'z' .. lock
  if call('HEXISTS', entries, id) == 1 or call('ZCARD', entry_ends) >= MAX_WAITERS then
    return nil
  end
  local last = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  call('HSET', entries, id, '1 ' .. int(now_us) .. ' ' .. request.claim_time .. ' ' .. request.tokens .. ' '
    .. request.client)
  call('ZADD', queue, (tonumber(last) or 0) + 1, id)
  call('ZADD', entry_ends, int(math.floor(now_us / 1000) + request.entry_life), id)
  if call('PTTL', queue) < MIN_QUEUE_LIFE or call('PTTL', entry_ends) < MIN_QUEUE_LIFE then
    call('PEXPIRE', queue, QUEUE_LIFE)
    outlive(entry_ends, QUEUE_LIFE)
    outlive(entries, QUEUE_LIFE)
  end
  local ahead = last and call('ZCARD', queue) - 1 or 0
  return 'waiting ' .. ahead .. ' ' .. (ahead < WATCHERS and call('PTTL', lock) or -1) .. ' 0'
end

-- Claims the free names together, and enqueues claims behind a holder; leaves `answers` empty for all other claims.
local function fast_path()
  -- The exclusive claims; two side keys for each of them, the record and the tombstones; the number of tokens for the
  -- free names.
  local exclusive, side_keys, tokens = {}, {}, 0
  for i = 1, ITEM_COUNT do
    local request, side = request_of(i), ARGV[3 * i - 2]
    if request.action == 'create' and request.mode == 'x' then
      local record, tombstones = side .. 'c' .. KEYS[i + 1], side .. 'd' .. KEYS[i + 1]
      local n = #exclusive
      exclusive[n + 1] = { i = i, request = request, record = record }
      side_keys[2 * n + 1], side_keys[2 * n + 2] = record, tombstones
    end
  end
  if #exclusive == 0 then
    return
  end
  local free = exclusive
  if call('EXISTS', unpack(side_keys)) > 0 then
    free = {}
    for n, item in ipairs(exclusive) do
      local existing = call('EXISTS', side_keys[2 * n - 1], side_keys[2 * n])
      if existing == 0 then
        free[#free + 1] = item
      elseif existing == 1 then
        -- One key exists, and enqueue_behind() needs a record: so there are no tombstones, and the claim is not dead.
        answers[item.i + 1] = enqueue_behind(item.i, item.record)
      end
    end
  end
  for _, item in ipairs(free) do
    tokens = tokens + item.request.tokens
  end
  local newest, one_each = nil, false
  if tokens > 0 then
    newest, one_each = next_tokens(tokens, #free)
  end
  if not newest then
    return
  end
  local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
  local first = newest - (one_each and #free or tokens) + 1
  for _, item in ipairs(free) do
    local i, request = item.i, item.request
    local lock, id, token, count = KEYS[i + 1], ARGV[3 * i - 1], int(first), one_each and '1' or request.tokens
    first = first + count
    if call('SET', lock, id .. '.' .. token, 'NX', 'PX', request.ttl) then
      call('SET', item.record, since .. token .. ' ' .. count .. ' ' .. id .. ' - ' .. request.client, 'PX',
        request.record_life)
      answers[i + 1] = 'held ' .. token .. ' ' .. count .. ' ' .. request.ttl .. ' c'
    end
  end
end
