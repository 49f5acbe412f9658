-- Between the quick part of a verb and the whole of it. What goes wrong in the one goes wrong in the other, and is told there.
pcall(quick)
local rest = false
for at = 2, #KEYS do
  rest = rest or not answers[at]
end
if not rest then
  return answers
end
