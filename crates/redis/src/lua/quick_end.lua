-- Between the fast path of a verb and its whole script. An error in the first also occurs in the second, and is
-- reported there.
pcall(fast_path)
local left = false
for at = 1, ITEMS do
  left = left or not answers[at + 1]
end
if not left then
  return answers
end
