-- Frees names that were held alone, that ended well, and that nobody waits for: most releases. Stands before name.lua and
-- release.lua, which do everything else; apart, because defining their functions costs more than this.
local answers, rest = { 0 }, false
do
  local function one(at)
    local base, lock = 6 * at - 6, KEYS[at + 1]
    local side, token = ARGV[base + 1], ARGV[base + 3]
    if token == '' or ARGV[base + 4] ~= 'c' or ARGV[base + 5] ~= '0' or ARGV[base + 6] ~= '0'
      or redis.call('GET', lock) ~= ARGV[base + 2] .. '.' .. token or redis.call('EXISTS', side .. 'q' .. lock) == 1
    then
      return false
    end
    redis.call('DEL', lock, side .. 'c' .. lock)
    return 'freed'
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
