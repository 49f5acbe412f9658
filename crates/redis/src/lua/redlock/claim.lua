-- Sets locks on this node for claims, and answers with all facts that decide whether the vote of the node counts.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<how> <attempt> <ttl ms> <first> <tokens> <waits> <longest ttl ms>
--      <channel> <owner>"
--   how      "create", or "ask", which creates nothing
--   first    a token to write in the same step, if it is larger than the present one; 0 for none
--   waits    1: if the name is taken, notify this claim of the release; 2: an earlier request of it asked for that
-- Answers "<word> <us> <newest token> <how that ended> <first> <tokens> <us since born> <longest ttl ms> <left ms>"
--   word     "locked", "relocked" (it was locked by this claim before), "taken", "absent" (of an ask), "dead", "typed"
--            (the value is no string)
--   first    the first token of the block that is written here for this claim; 0 if there is none
--   left     of the lock that is in the way; -1 if it never ends
-- Never writes a foreign key.
local data_age, longest_known -- as text, the same for all items

-- How long the node has had its data, and the longest ttl of any client, which it records.
local function known_age(longest)
  if data_age then
    return data_age, longest_known
  end
  local born, most = (call('GET', BORN) or ''):match('^(%d+) (%d+)$')
  born, most = tonumber(born), tonumber(most or 0)
  if not born or born > us then
    born, most = us, 0
    call('SET', BORN, int(us) .. ' ' .. int(longest))
  elseif most < longest then
    call('SET', BORN, int(born) .. ' ' .. int(longest))
  end
  data_age, longest_known = int(us - born), int(math.max(most, longest))
  return data_age, longest_known
end

-- Records a claim that wants a notification of the release.
local function enqueue(side, lock, id, channel, owner)
  local queue, info = side .. 'W' .. lock, side .. 'V' .. lock
  if call('ZSCORE', queue, id) or call('ZCARD', queue) < MAX_WAITERS then
    if call('ZADD', queue, 'NX', int(us), id) == 1 then
      call('HSET', info, id, int(us) .. ' ' .. channel .. ' ' .. owner)
    end
    call('PEXPIRE', queue, WAIT_LIFE)
    call('PEXPIRE', info, WAIT_LIFE)
  end
end

local function one(lock, side, id, text)
  local how, attempt, ttl, first, tokens, waits, longest, channel, owner = text:match(
    '^(%l+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (%S+) (.*)$')
  first, tokens, longest = tonumber(first), tonumber(tokens), tonumber(longest)
  local value, born, word, left = value_under(lock), nil, nil, '-1'
  born, longest = known_age(longest)
  local key = side .. 'T' .. lock
  local t = read(call('GET', key))
  local newest, how_ended = t.last, t.id == id and t.before or ended(t)
  if is_of(value, id) then
    word = 'relocked'
    if how == 'ask' then
      call('PEXPIRE', lock, ttl)
    elseif tonumber(value:sub(ATTEMPT_AT)) > tonumber(attempt) then
      word = 'dead' -- a later attempt of the same claim is there
    else
      call('SET', lock, id .. '-' .. attempt, 'PX', ttl)
    end
  elseif value == 'broken-' .. id then
    word = 'dead'
  elseif value and how == 'ask' and value:sub(1, 1) ~= '(' then
    word = 'absent'
  elseif value and has_tombstone(side .. 'D' .. lock, id) then
    word = 'dead'
  elseif value then
    word, left = value:sub(1, 1) == '(' and 'typed' or 'taken', int(call('PTTL', lock))
    if waits ~= '0' and word == 'taken' then
      enqueue(side, lock, id, channel, owner)
    end
  elseif how == 'ask' then
    word = 'absent'
  elseif has_tombstone(side .. 'D' .. lock, id) then
    word = 'dead'
  else
    -- An empty string is a foreign lock, too.
    word = call('SET', lock, id .. '-' .. attempt, 'NX', 'PX', ttl) and 'locked' or 'taken'
  end
  local mine = word == 'locked' or word == 'relocked'
  if mine then
    if waits == '2' then
      forget(side, lock, id)
    end
    if first > 0 and word == 'locked' and t.id ~= id then
      mint(key, t, first, tokens, id, owner)
    end
  end
  mine = mine and t.id == id
  local block = mine and int(t.first) .. ' ' .. int(t.last - t.first + 1) or '0 0'
  return word .. ' ' .. now .. ' ' .. int(newest) .. ' ' .. how_ended .. ' ' .. block .. ' ' .. born .. ' ' .. longest
    .. ' ' .. left
end

return each(3, one)
