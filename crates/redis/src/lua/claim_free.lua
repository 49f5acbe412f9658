-- Claims free names without waiters, on one server: most claims. This script needs fewer arguments for each claim than
-- the whole script, and leaves every other case to it.
--
-- KEYS 1 counter
-- ARGV 1 the server's microseconds when the connection was made · 2 nothing; the rest as in claim_node.lua
-- Answers as claim_node.lua.
-- Invariant: as in claim.lua.
-- By the number of the claim, n: its lock, its id, its request (false if the name is not free). `side_keys` has two
-- entries for each claim: the record and the tombstones. `total`: the tokens of all claims. `a`: the latest request.
local answers, locks, ids, asks, side_keys = { int(us) }, {}, {}, {}, {}
local total, a, n = 0, nil, 0
-- A string costs a tenth of a command: none is made twice, or only as a part of another.
local sub, format = string.sub, string.format

-- Parses the request of the claims that follow: `some` and `rest` are parts of their records.
local function asked(text)
  local ttl, tokens, rest = text:match('^=(%d+) (%d+) (.*)$')
  return {
    ttl = ttl, tokens = tonumber(tokens), some = ' ' .. tokens .. ' ', rest = ' - ' .. rest,
    life = int(ttl + ENDED_LIFE),
  }
end

for at = 3, #ARGV do
  local text = ARGV[at]
  local tag = sub(text, 1, 4)
  if text:byte() == 61 then -- '='
    a = asked(text)
  else
    n = n + 1
    local lock = sub(text, 37)
    locks[n], ids[n], asks[n], answers[n + 1] = lock, sub(text, 5, 36), a, '0'
    side_keys[2 * n - 1], side_keys[2 * n] = 'leasehold:{' .. tag .. '}c' .. lock, 'leasehold:{' .. tag .. '}d' .. lock
    total = total + a.tokens
  end
end

-- Drops the claims of names that are not free; returns the number of the others.
local function sort_out()
  if call('EXISTS', unpack(side_keys)) == 0 then
    return #locks
  end
  local free = 0
  for n in ipairs(locks) do
    if call('EXISTS', side_keys[2 * n - 1], side_keys[2 * n]) == 0 then
      free = free + 1
    else
      total, asks[n] = total - asks[n].tokens, false
    end
  end
  return free
end

-- Mints the tokens of all claims, and grants the free names.
local function take()
  local free = sort_out()
  if free == 0 then
    return
  end
  local first, minted = mint(KEYS[1], total, free)
  if not first then
    return
  end
  local single = minted ~= total -- each claim gets only one token
  for n, lock in ipairs(locks) do
    local a = asks[n]
    if a then
      local token, id = format(FORMAT, first), ids[n]
      if call('SET', lock, id .. '.' .. token, 'NX', 'PX', a.ttl) then
        call('SET', side_keys[2 * n - 1], since .. token .. (single and ' 1 ' or a.some) .. id .. a.rest, 'PX', a.life)
        answers[n + 1] = (not single or a.tokens == 1) and token or '-' .. token
      end
      first = first + (single and 1 or a.tokens)
    end
  end
end

pcall(take)
return table.concat(answers, ' ')
