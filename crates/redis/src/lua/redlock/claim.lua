-- Sets lock keys on this node for claims, and answers with everything that decides whether the vote of the node counts.
--
-- KEYS[i] lock · ARGV, 3 each: side · id · "<action> <attempt> <ttl ms> <first> <tokens> <waits> <longest ttl ms>
--      <channel> <owner>"
--   action   "create", or "ask", which creates nothing
--   first    a token to write in the same step, if it is larger than the newest token here; 0 for none
--   waits    1: if the name is taken, notify this claim of the release; 2: an earlier request of the claim asked for
--   that
-- Answers "<word> <us> <newest token> <how that ended> <first> <tokens> <us since born> <longest ttl ms>
--      <remaining ms>"
--   word     "locked", "relocked" (it was locked by this claim before), "taken", "absent" (of an ask), "dead", "typed"
--            (the value is no string)
--   first    the first token of the block that is written here for this claim; 0 if there is none
--   remaining  how long the lock that is in the way still lasts; -1 if it has no expiry
-- Never writes a foreign key.
local data_age, longest_known -- as text, the same for all items

-- Records the longest ttl of any client. Returns for how long the node has had its data, and that longest ttl.
local function known_age(longest)
  if data_age then
    return data_age, longest_known
  end
  local born, most = (call('GET', BORN) or ''):match('^(%d+) (%d+)$')
  born, most = tonumber(born), tonumber(most or 0)
  if not born or born > now_us then
    born, most = now_us, 0
    call('SET', BORN, int(now_us) .. ' ' .. int(longest))
  elseif most < longest then
    call('SET', BORN, int(born) .. ' ' .. int(longest))
  end
  data_age, longest_known = int(now_us - born), int(math.max(most, longest))
  return data_age, longest_known
end

-- Records a claim that is to be notified when the name is released.
local function enqueue(side, lock, id, channel, owner)
  local queue, waiter_info = side .. 'W' .. lock, side .. 'V' .. lock
  if call('ZSCORE', queue, id) or call('ZCARD', queue) < MAX_WAITERS then
    if call('ZADD', queue, 'NX', int(now_us), id) == 1 then
      call('HSET', waiter_info, id, int(now_us) .. ' ' .. channel .. ' ' .. owner)
    end
    call('PEXPIRE', queue, WAIT_LIFE)
    call('PEXPIRE', waiter_info, WAIT_LIFE)
  end
end

-- Answers one claim.
local function claim_item(lock, side, id, text)
  local action, attempt, ttl, first, tokens, waits, longest, channel, owner = text:match(
    '^(%l+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (%S+) (.*)$')
  first, tokens, longest = tonumber(first), tonumber(tokens), tonumber(longest)
  local value, age_text, word, remaining = value_under(lock), nil, nil, '-1'
  age_text, longest = known_age(longest)
  local token_key = side .. 'T' .. lock
  local block = read_block(call('GET', token_key))
  local newest, end_letter = block.last, block.id == id and block.before or end_of(block)
  if is_of(value, id) then
    word = 'relocked'
    if action == 'ask' then
      call('PEXPIRE', lock, ttl)
    elseif tonumber(value:sub(ATTEMPT_AT)) > tonumber(attempt) then
      word = 'dead' -- a later attempt of the same claim has the lock
    else
      call('SET', lock, id .. '-' .. attempt, 'PX', ttl)
    end
  elseif value == 'broken-' .. id then
    word = 'dead'
  elseif value and action == 'ask' and value:sub(1, 1) ~= '(' then
    word = 'absent'
  elseif value and has_tombstone(side .. 'D' .. lock, id) then
    word = 'dead'
  elseif value then
    word, remaining = value:sub(1, 1) == '(' and 'typed' or 'taken', int(call('PTTL', lock))
    if waits ~= '0' and word == 'taken' then
      enqueue(side, lock, id, channel, owner)
    end
  elseif action == 'ask' then
    word = 'absent'
  elseif has_tombstone(side .. 'D' .. lock, id) then
    word = 'dead'
  else
    -- An empty string is a foreign lock, too.
    word = call('SET', lock, id .. '-' .. attempt, 'NX', 'PX', ttl) and 'locked' or 'taken'
  end
  local has_lock = word == 'locked' or word == 'relocked'
  if has_lock then
    if waits == '2' then
      forget(side, lock, id)
    end
    if first > 0 and word == 'locked' and block.id ~= id then
      write_block(token_key, block, first, tokens, id, owner)
    end
  end
  has_lock = has_lock and block.id == id
  local block_words = has_lock and int(block.first) .. ' ' .. int(block.last - block.first + 1) or '0 0'
  return word .. ' ' .. now_text .. ' ' .. int(newest) .. ' ' .. end_letter .. ' ' .. block_words .. ' ' .. age_text
    .. ' ' .. longest .. ' ' .. remaining
end

return answer_items(3, claim_item)
