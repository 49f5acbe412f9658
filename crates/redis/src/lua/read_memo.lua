-- Reads the memo of a name. Writes nothing.
--
-- KEYS 2 lock
-- ARGV 1 side
-- Answers {server time in us, none or foreign or layout} or {server time in us, memo, text of the memo, remaining ms, 1
-- if the claim that wrote it holds the name, otherwise 0}.
local key = ARGV[1] .. 'm' .. KEYS[2]
local text, _, id = read_text(key, MAX_HEADER_BYTES + MAX_MEMO_BYTES + 1)
if not id then
  return { now_us, text or 'none' }
end
local left = memo_left(key)
if left <= 0 then
  return { now_us, 'none' }
end
local name = load(KEYS[2], ARGV[1])
if not name then
  return { now_us, 'layout' }
end
return { now_us, 'memo', text, left, holds(name, id) and 1 or 0 }
