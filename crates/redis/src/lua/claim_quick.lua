-- Claims free names without waiters, and enqueues claims of names that one of our claims holds alone: most claims.
-- Precedes name.lua and claim.lua, which handle every other case; separate, because defining their functions costs more
-- than this.

-- Enqueues the claim at this position, if one of our claims holds the name and the record is in words. Returns the
-- answer; nil if the whole script must handle the claim.
local function enqueue_behind(at, record)
  local a, lock, side, id = asked(at), KEYS[at + 1], ARGV[3 * at - 2], ARGV[3 * at - 1]
  local words = string_at(record, call) or ''
  local token, holder = words:match('^1 %d+ %d+ (%d+) %d+ (%x+) ')
  local hold = holder and holder ~= id and holder .. '.' .. token
  local value = a.may_queue == '1' and hold and string_at(lock, redis.pcall)
  if not value or value ~= hold and value ~= hold .. '?' then
    return nil
  end
  local queue, entries, entry_ends = side .. 'q' .. lock, side .. 'e' .. lock, side .. 'z' .. lock
  if call('HEXISTS', entries, id) == 1 or call('ZCARD', entry_ends) >= MAX_WAITERS then
    return nil
  end
  local last = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  call('HSET', entries, id, '1 ' .. int(us) .. ' ' .. a.claim .. ' ' .. a.tokens .. ' ' .. a.client)
  call('ZADD', queue, (tonumber(last) or 0) + 1, id)
  call('ZADD', entry_ends, int(math.floor(us / 1000) + a.entry_life), id)
  if call('PTTL', queue) < QUEUE_LEAST or call('PTTL', entry_ends) < QUEUE_LEAST then
    call('PEXPIRE', queue, QUEUE_LIFE)
    outlive(entry_ends, QUEUE_LIFE)
    outlive(entries, QUEUE_LIFE)
  end
  local ahead = last and call('ZCARD', queue) - 1 or 0
  return 'waiting ' .. ahead .. ' ' .. (ahead < WATCHERS and call('PTTL', lock) or -1) .. ' 0'
end

local function fast_path()
  -- The exclusive claims; their side keys, two for each: the record and the tombstones; the tokens of the free names.
  local plain, side_keys, tokens = {}, {}, 0
  for at = 1, ITEMS do
    local a, side = asked(at), ARGV[3 * at - 2]
    if a.how == 'create' and a.mode == 'x' then
      local record, tombstones = side .. 'c' .. KEYS[at + 1], side .. 'd' .. KEYS[at + 1]
      local n = #plain
      plain[n + 1] = { at = at, a = a, record = record }
      side_keys[2 * n + 1], side_keys[2 * n + 2] = record, tombstones
    end
  end
  if #plain == 0 then
    return
  end
  local free = plain
  if call('EXISTS', unpack(side_keys)) > 0 then
    free = {}
    for n, item in ipairs(plain) do
      local found = call('EXISTS', side_keys[2 * n - 1], side_keys[2 * n])
      if found == 0 then
        free[#free + 1] = item
      elseif found == 1 then
        -- A dead claim stays dead: a record is found here only if there are no tombstones.
        answers[item.at + 1] = enqueue_behind(item.at, item.record)
      end
    end
  end
  for _, item in ipairs(free) do
    tokens = tokens + item.a.tokens
  end
  local newest, single = nil, false
  if tokens > 0 then
    newest, single = next_tokens(tokens, #free)
  end
  if not newest then
    return
  end
  local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
  local first = newest - (single and #free or tokens) + 1
  for _, item in ipairs(free) do
    local at, a = item.at, item.a
    local lock, id, token, count = KEYS[at + 1], ARGV[3 * at - 1], int(first), single and '1' or a.tokens
    first = first + count
    if call('SET', lock, id .. '.' .. token, 'NX', 'PX', a.ttl) then
      call('SET', item.record, since .. token .. ' ' .. count .. ' ' .. id .. ' - ' .. a.client, 'PX', a.record_life)
      answers[at + 1] = 'held ' .. token .. ' ' .. count .. ' ' .. a.ttl .. ' c'
    end
  end
end
