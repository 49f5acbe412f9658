-- Between the quick part of a verb and the whole of it. What goes wrong in the one goes wrong in the other, and is told there.
pcall(quick)
local left = false
for at = 1, ITEMS do
  left = left or not answers[at + 1]
end
if not left then
  return answers
end
