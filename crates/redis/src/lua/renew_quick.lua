-- Extends exclusive holds that are confirmed: most renewals. Stands before name.lua and renew.lua, which do everything
-- else; apart, because defining their functions costs more than this.
local answers, rest = { 0 }, false
do
  local function one(at)
    local lock, side, ttl = KEYS[at + 1], ARGV[4 * at - 3], tonumber(ARGV[4 * at])
    if redis.call('GET', lock) ~= ARGV[4 * at - 2] .. '.' .. ARGV[4 * at - 1] then
      return false
    end
    if redis.call('PTTL', lock) < ttl then
      redis.call('PEXPIRE', lock, ttl)
    end
    local card = side .. 'c' .. lock
    if redis.call('PTTL', card) < ttl + 1800000 then
      redis.call('PEXPIRE', card, ttl + 3600000)
    end
    return 'kept'
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
