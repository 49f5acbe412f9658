-- What the scripts that take free names share. Stands before claim_free.lua and claim_node.lua.
local call, floor = redis.call, tonumber(ARGV[1])
local clock = call('TIME')
local us = clock[1] * 1000000 + clock[2]
local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
local ENDED_LIFE = 3600000 -- as in head.lua
local LEAD = 10000         -- as in head.lua

local function int(number)
  return string.format('%.0f', number)
end

-- Mints so many tokens in a row, or, where the counter would be ahead of the clock then, only `least`: the first, and how many. nil if
-- that would be too many, too: then next_tokens() in head.lua knows what to do. A counter that is lost, or older than this
-- connection, goes on from the clock, as in mint() in name.lua.
local function mint(counter, tokens, least)
  local newest = call('INCRBY', counter, int(tokens))
  local before = newest - tokens
  if before <= floor and before < us then
    tokens = tokens <= LEAD and tokens or least
    call('SET', counter, int(us + tokens - 1), 'PX', int(tokens / 1000 + 1 + ENDED_LIFE))
    return us, tokens
  end
  if newest > us and tokens > least then
    newest, tokens = call('INCRBY', counter, int(least - tokens)), least
  end
  if newest > us then
    call('INCRBY', counter, int(-tokens))
    return nil
  end
  return newest - tokens + 1, tokens
end

-- What the claims that follow ask for.
local function asked(text)
  local ttl, tokens, rest = text:match('^=(%d+) (%d+) (.*)$')
  return { ttl = ttl, tokens = tonumber(tokens), rest = rest, life = int(ttl + ENDED_LIFE) }
end
