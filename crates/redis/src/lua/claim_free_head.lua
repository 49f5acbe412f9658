-- Shared by the scripts that claim free names. Comes before claim_free.lua or claim_node.lua.
local call, floor = redis.call, tonumber(ARGV[1])
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
local ENDED_LIFE = 3600000 -- as in head.lua
local MAX_LEAD = 10000     -- as in head.lua
-- '%d' is faster, and on servers whose integers have 64 bits as exact as '%.0f'.
local FORMAT = string.format('%d', 4503599627370496) == '4503599627370496' and '%d' or '%.0f'

-- The text of a whole number.
local function int(number)
  return string.format(FORMAT, number)
end

-- Mints this many consecutive tokens, or only `least` of them if with more the counter would be ahead of the clock.
-- Returns the first token and the number of tokens. nil if even `least` tokens are too many: next_tokens() in head.lua
-- handles this case. A counter that is lost, or not above the floor, continues from the clock, as in mint() in
-- name.lua.
local function mint(counter, tokens, least)
  local newest = call('INCRBY', counter, int(tokens))
  local before = newest - tokens
  if before <= floor and before < now_us then
    tokens = tokens <= MAX_LEAD and tokens or least
    call('SET', counter, int(now_us + tokens - 1), 'PX', int(math.floor(tokens / 1000) + 1 + ENDED_LIFE))
    return now_us, tokens
  end
  if newest > now_us and tokens > least then
    newest, tokens = call('INCRBY', counter, int(least - tokens)), least
  end
  if newest > now_us then
    call('INCRBY', counter, int(-tokens))
    return nil
  end
  return newest - tokens + 1, tokens
end
