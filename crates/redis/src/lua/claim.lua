-- Takes the name, or a place in line, or says where the claim stands.
--
-- KEYS 1 lock
-- ARGV 1 side · 2 id · 3 create or ask · 4 mode x, s or p · 5 count · 6 limit (0 for x and s) · 7 ttl ms · 8 claim time ms
--      9 lease of a place in line, ms · 10 may queue 1 or 0 · 11 tokens · 12 channel · 13 owner
-- Answers {server us, what, ...}:
--   held, token, tokens, ttl ms, how the hold before ended · waiting, ahead, free in ms or -1, foreign 1 or 0
--   taken, ahead, free in ms or -1 · gone · clash, mode, limit · full · layout
-- Invariant: ask creates nothing; a dead claim is gone; nobody passes a live claim in line.
local id, how, ttl = ARGV[2], ARGV[3], tonumber(ARGV[7])
speaker = id
local s = load(KEYS[1], ARGV[1])
if not s then
  return { us, 'layout' }
end
local c = s.c

local function held(h, ttl)
  return { us, 'held', h.token, h.tokens, ttl, h.prev }
end

local function hint(what, ahead)
  local told = ahead < WATCHERS and frees_in(s) or -1
  return { us, what, ahead, told, is_foreign(s) and 1 or 0 }
end

-- The answer to a claim that is granted: the same grant, extended.
local function answer_holder()
  local h
  if c.mode == 'x' then
    h = c.holder.id == id and c.holder.state ~= 'kept' and c.holder
  elseif c.mode then
    h = redis.call('ZSCORE', s.holds, id) and entry(s, id)
  end
  if not h then
    return nil
  elseif h.state == '!' then
    return { us, 'gone' }
  end
  confirm(s, id, ttl)
  return held(h, ttl)
end

local asked = {
  mode = ARGV[4], count = tonumber(ARGV[5]), limit = tonumber(ARGV[6]), claim = tonumber(ARGV[8]),
  tokens = tonumber(ARGV[11]), channel = ARGV[12], owner = ARGV[13], since = us,
}

local function clash()
  return c.limit and c.limit ~= asked.limit and { us, 'clash', c.mode or '', c.limit }
end

-- Stands in line, at its end.
local function stand(e)
  local last = redis.call('ZREVRANGE', s.line, 0, 0, 'WITHSCORES')[2]
  e.state, e.till, e.channel = 'waiting', now + tonumber(ARGV[9]), asked.channel
  put(s, id, e)
  redis.call('ZADD', s.line, (tonumber(last) or 0) + 1, id)
  redis.call('ZADD', s.places, e.till, id)
  c.limit = asked.limit
end

-- The claim in line spoke: its place lives on, and news go where it spoke from.
local function spoke(e)
  e.channel, e.till = asked.channel, now + tonumber(ARGV[9])
  put(s, id, e)
  redis.call('ZADD', s.places, e.till, id)
end

local function answer()
  prune(s)
  settle(s)
  local granted = answer_holder()
  if granted then
    return granted
  end
  local e = entry(s, id)
  if e and e.state == 'waiting' then
    spoke(e)
    return hint('waiting', redis.call('ZRANK', s.line, id))
  elseif e then
    -- It missed its turn: to the end of the line.
    local refused = clash()
    if refused then
      return refused
    end
    stand(e)
    settle(s)
    return answer_holder() or hint('waiting', redis.call('ZRANK', s.line, id))
  end
  if how == 'ask' or redis.call('EXISTS', s.side .. 'd' .. id) == 1 then
    return { us, 'gone' }
  end
  local refused = clash()
  if refused then
    return refused
  end
  local ahead = redis.call('ZCARD', s.line)
  if ahead == 0 and fits(s, asked) then
    seat(s, id, asked, mint(s.side, asked.tokens), ttl, '')
    return held(asked, ttl)
  elseif ARGV[10] == '0' then
    local told = frees_in(s)
    return { us, 'taken', ahead, told }
  elseif redis.call('ZCARD', s.places) >= MAX_WAITERS then
    return { us, 'full' }
  end
  stand(asked)
  return hint('waiting', ahead)
end

local told = answer()
save(s, ttl)
if told[2] == 'waiting' then
  outlive(s.line, LINE_LIFE)
  outlive(s.places, LINE_LIFE)
  outlive(s.entries, LINE_LIFE)
end
return told
