-- Frees names that were held alone, that ended well, and that nobody waits for: most releases. Stands before name.lua and
-- release.lua, which do everything else; apart, because defining their functions costs more than this.
local answers, rest = { 0 }, false
for at = 1, #KEYS - 1 do
  local base, lock = 6 * at - 6, KEYS[at + 1]
  local side, token = ARGV[base + 1], ARGV[base + 3]
  answers[at + 1] = false
  if token ~= '' and ARGV[base + 4] == 'c' and ARGV[base + 5] == '0' and ARGV[base + 6] == '0'
    and redis.pcall('GET', lock) == ARGV[base + 2] .. '.' .. token and redis.call('EXISTS', side .. 'q' .. lock) == 0
  then
    redis.call('DEL', lock, side .. 'c' .. lock)
    answers[at + 1] = 'freed'
  end
  rest = rest or not answers[at + 1]
end
if not rest then
  return answers
end
