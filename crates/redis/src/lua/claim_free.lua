-- Takes names that are free and that nobody waits for, on one server: most claims. It is told less of each claim than the whole verb,
-- to which it leaves whatever is not as plain as that.
--
-- KEYS 1 counter
-- ARGV 1 the server's microseconds when the connection was made · 2 nothing; then as of claim_node.lua
-- Answers as claim_node.lua.
-- Invariant: as of claim.lua.
local answers, locks, ids, asks, known = { int(us) }, {}, {}, {}, {}
local total, a = 0, nil

-- What the claims that follow ask for.
local function asked(text)
  local ttl, tokens, rest = text:match('^=(%d+) (%d+) (.*)$')
  return { ttl = ttl, tokens = tonumber(tokens), rest = rest, life = int(ttl + ENDED_LIFE) }
end

for at = 3, #ARGV do
  local text = ARGV[at]
  if text:byte() == 61 then
    a = asked(text)
  else
    local n = #locks + 1
    local side, lock = 'leasehold:{' .. text:sub(1, 4) .. '}', text:sub(37)
    locks[n], ids[n], asks[n], answers[n + 1] = lock, text:sub(5, 36), a, '0'
    known[2 * n - 1], known[2 * n] = side .. 'c' .. lock, side .. 'd' .. lock
    total = total + a.tokens
  end
end

-- Leaves out what is not free.
local function sort_out()
  if call('EXISTS', unpack(known)) == 0 then
    return #locks
  end
  local free = 0
  for n in ipairs(locks) do
    if call('EXISTS', known[2 * n - 1], known[2 * n]) == 0 then
      free = free + 1
    else
      total, asks[n] = total - asks[n].tokens, false
    end
  end
  return free
end

local function take()
  local free = sort_out()
  if free == 0 then
    return
  end
  local first, minted = mint(KEYS[1], total, free)
  local single = minted ~= total
  for n, lock in ipairs(locks) do
    local a = first and asks[n]
    if a then
      local token, tokens = int(first), single and 1 or a.tokens
      if call('SET', lock, ids[n] .. '.' .. token, 'NX', 'PX', a.ttl) then
        call('SET', known[2 * n - 1], since .. token .. ' ' .. tokens .. ' ' .. ids[n] .. ' - ' .. a.rest, 'PX', a.life)
        answers[n + 1] = tokens == a.tokens and token or '-' .. token
      end
      first = first + tokens
    end
  end
end

pcall(take)
return table.concat(answers, ' ')
