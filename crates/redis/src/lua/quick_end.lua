-- Runs the fast path of a script, and ends the script if all items are answered; otherwise the full script follows. An
-- error in the fast path is ignored here: the full script runs into the same error, and reports it.
pcall(fast_path)
local is_unanswered = false
for i = 1, ITEM_COUNT do
  is_unanswered = is_unanswered or not answers[i + 1]
end
if not is_unanswered then
  return answers
end
