-- Takes names that are free and that nobody waits for, and stands in line for names that one of ours holds alone: most
-- claims. Stands before name.lua and claim.lua, which do everything else; apart, because defining their functions costs
-- more than this.
local asks = {} -- most claims of a batch ask for the same

local function asked(at)
  local text = ARGV[3 * at]
  local a = asks[text]
  if not a then
    a = {}
    a.how, a.mode, a.count, a.limit, a.ttl, a.claim, a.place, a.may_queue, a.tokens, a.speaker = text:match(
      '^(%l+) (%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (.*)$')
    a.card_life = int(a.ttl + ENDED_LIFE)
    a.first, a.rest, a.said = ' ' .. a.tokens .. ' ', ' - ' .. a.speaker, ' ' .. a.tokens .. ' ' .. a.ttl .. ' c'
    asks[text] = a
  end
  return a
end

-- Stands in line if the name is held by a claim of ours that is written as words.
local function stand_behind(at, card)
  local a, lock, side, id = asked(at), KEYS[at + 1], ARGV[3 * at - 2], ARGV[3 * at - 1]
  local value, words = unpack(call('MGET', lock, card))
  local token, holder = (words or ''):match('^1 %d+ %d+ (%d+) %d+ (%x+) ')
  local hold = holder and holder ~= id and holder .. '.' .. token
  if a.may_queue ~= '1' or not hold or value ~= hold and value ~= hold .. '?' then
    return nil
  end
  local line, entries, places = side .. 'q' .. lock, side .. 'e' .. lock, side .. 'z' .. lock
  if call('HEXISTS', entries, id) == 1 or call('ZCARD', places) >= MAX_WAITERS then
    return nil
  end
  local last = call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2]
  call('HSET', entries, id, '1 ' .. int(us) .. ' ' .. a.claim .. ' ' .. a.tokens .. ' ' .. a.speaker)
  call('ZADD', line, (tonumber(last) or 0) + 1, id)
  call('ZADD', places, int(math.floor(us / 1000) + a.place), id)
  if call('PTTL', line) < LINE_LEAST or call('PTTL', places) < LINE_LEAST then
    call('PEXPIRE', line, LINE_LIFE)
    outlive(places, LINE_LIFE)
    outlive(entries, LINE_LIFE)
  end
  local ahead = last and call('ZCARD', line) - 1 or 0
  return 'waiting ' .. ahead .. ' ' .. (ahead < WATCHERS and call('PTTL', lock) or -1) .. ' 0'
end

local function quick()
  local free, known, some, tokens = {}, {}, {}, 0
  for at = 1, #KEYS - 1 do
    local a = asked(at)
    if a.how == 'create' and a.mode == 'x' then
      local side, n = ARGV[3 * at - 2], #free
      free[n + 1], some[n + 1], known[2 * n + 1], known[2 * n + 2] = at, a, side .. 'c' .. KEYS[at + 1], side .. 'd' .. ARGV[3 * at - 1]
      tokens = tokens + a.tokens
    end
  end
  if #free == 0 then
    return
  end
  if call('EXISTS', unpack(known)) > 0 then
    for n, at in ipairs(free) do
      local found = call('EXISTS', known[2 * n - 1], known[2 * n])
      if found > 0 then
        answers[at + 1] = found == 1 and stand_behind(at, known[2 * n - 1])
        some[n], tokens = false, tokens - asked(at).tokens
      end
    end
  end
  local newest = tokens > 0 and next_tokens(tokens)
  if not newest then
    return
  end
  local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
  local format, token_of = string.format, newest - tokens + 1
  for n, at in ipairs(free) do
    local a = some[n]
    if a then
      local lock, id, token = KEYS[at + 1], ARGV[3 * at - 1], format('%.0f', token_of)
      token_of = token_of + a.tokens
      if call('SET', lock, id .. '.' .. token, 'NX', 'PX', a.ttl) then
        call('SET', known[2 * n - 1], since .. token .. a.first .. id .. a.rest, 'PX', a.card_life)
        answers[at + 1] = 'held ' .. token .. a.said
      end
    end
  end
end
