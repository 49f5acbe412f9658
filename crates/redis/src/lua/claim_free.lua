-- Claims free names without waiters, on one server: most claims. This script needs fewer arguments for each claim than
-- the full script, and leaves every other case to the full script.
--
-- KEYS 1 counter
-- ARGV 1 the server's microseconds when the connection was made · 2 nothing; the rest as in claim_node.lua
-- Answers as claim_node.lua.
-- Invariant: as in claim.lua.

-- By the number of the claim, n: its lock, its id, its request (false if the name is not free). `side_keys` has two
-- entries for each claim: the record and the tombstones. `total_tokens`: the tokens of all claims. `request`: the
-- latest request.
local answers, locks, ids, requests, side_keys = { int(now_us) }, {}, {}, {}, {}
local total_tokens, request, n = 0, nil, 0
-- Making a string takes a tenth of the time of a command. So a string that is needed twice is stored, unless it is only
-- a part of another string.
local sub, format = string.sub, string.format

-- Parses the request of the claims that follow it: `tokens_part` and `client_part` are parts of the records of these
-- claims.
local function parse_request(text)
  local ttl, tokens, client_part = text:match('^=(%d+) (%d+) (.*)$')
  return {
    ttl = ttl, tokens = tonumber(tokens), tokens_part = ' ' .. tokens .. ' ', client_part = ' - ' .. client_part,
    life = int(ttl + ENDED_LIFE),
  }
end

for i = 3, #ARGV do
  local text = ARGV[i]
  local tag = sub(text, 1, 4)
  if text:byte() == 61 then -- '='
    request = parse_request(text)
  else
    n = n + 1
    local lock = sub(text, 37)
    locks[n], ids[n], requests[n], answers[n + 1] = lock, sub(text, 5, 36), request, '0'
    side_keys[2 * n - 1], side_keys[2 * n] = 'leasehold:{' .. tag .. '}c' .. lock, 'leasehold:{' .. tag .. '}d' .. lock
    total_tokens = total_tokens + request.tokens
  end
end

-- Drops the claims of names that are not free; returns the number of the others.
local function drop_taken()
  if call('EXISTS', unpack(side_keys)) == 0 then
    return #locks
  end
  local free = 0
  for n in ipairs(locks) do
    if call('EXISTS', side_keys[2 * n - 1], side_keys[2 * n]) == 0 then
      free = free + 1
    else
      total_tokens, requests[n] = total_tokens - requests[n].tokens, false
    end
  end
  return free
end

-- Mints the tokens of all claims, and grants the free names.
local function claim_all()
  local free = drop_taken()
  if free == 0 then
    return
  end
  local first, minted = mint(KEYS[1], total_tokens, free)
  if not first then
    return
  end
  local one_each = minted ~= total_tokens -- each claim gets only one token
  for n, lock in ipairs(locks) do
    local request = requests[n]
    if request then
      local token, id = format(FORMAT, first), ids[n]
      if call('SET', lock, id .. '.' .. token, 'NX', 'PX', request.ttl) then
        call('SET', side_keys[2 * n - 1], since .. token .. (one_each and ' 1 ' or request.tokens_part) .. id
          .. request.client_part, 'PX', request.life)
        answers[n + 1] = (not one_each or request.tokens == 1) and token or '-' .. token
      end
      first = first + (one_each and 1 or request.tokens)
    end
  end
end

pcall(claim_all)
return table.concat(answers, ' ')
