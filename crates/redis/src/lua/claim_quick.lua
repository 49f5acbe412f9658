-- Takes names that are free and that nobody waits for: most claims. Stands before name.lua and claim.lua, which do
-- everything else; apart, because defining their functions costs more than this.
local answers, rest = { 0 }, false
do
  local clock, tokens = redis.call('TIME'), 0
  answers[1] = clock[1] * 1000000 + clock[2]
  local since = '1 ' .. clock[1] .. ' ' .. clock[2] .. ' '
  for at = 0, #KEYS - 2 do
    if ARGV[13 * at + 3] == 'create' and ARGV[13 * at + 4] == 'x' then
      tokens = tokens + ARGV[13 * at + 11]
    end
  end
  -- A counter that is lost, or older than this connection, is raised by mint() in name.lua.
  local last = tokens > 0 and tonumber(redis.call('GET', KEYS[1]) or 0) or 0
  local newest = last > tonumber(ARGV[#ARGV]) and redis.pcall('INCRBY', KEYS[1], tokens)
  if type(newest) == 'number' and newest > answers[1] then
    -- It ran ahead of the clock, so it must outlive that lead: as mint() does.
    redis.call('PEXPIREAT', KEYS[1], math.floor(newest / 1000) + 3600000)
  end

  local function one(at)
    local base, lock = 13 * at - 13, KEYS[at + 1]
    local side, id, owns = ARGV[base + 1], ARGV[base + 2], ARGV[base + 11]
    local card = side .. 'c' .. lock
    if type(newest) ~= 'number' or ARGV[base + 4] ~= 'x' or ARGV[base + 3] ~= 'create'
      or redis.call('EXISTS', lock, card, side .. 'd' .. id) > 0
    then
      return false
    end
    local token, ttl = string.format('%.0f', newest - tokens + 1), ARGV[base + 7]
    tokens = tokens - owns
    redis.call('SET', lock, id .. '.' .. token, 'PX', ttl)
    redis.call('SET', card, since .. token .. ' ' .. owns .. ' ' .. id .. ' ' .. ARGV[base + 12] .. ' ' .. ARGV[base + 13],
      'PX', ttl + 3600000)
    return 'held ' .. token .. ' ' .. owns .. ' ' .. ttl .. ' c'
  end

  for at = 1, #KEYS - 1 do
    -- What goes wrong here goes wrong there, and is told there.
    local done, told = pcall(one, at)
    answers[at + 1] = done and told
    rest = rest or not answers[at + 1]
  end
end
if not rest then
  return answers
end
