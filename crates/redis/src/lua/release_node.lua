-- Ends exclusive holds of names without waiters, in any slots of one node of a cluster, if the hold ended cleanly: most
-- releases. claim_node.lua says why these scripts declare no keys, and what the first command about a missing key
-- proves.
--
-- KEYS none
-- ARGV for each release: tag (4 letters), <id>.<token>, a blank, lock
-- Answers in one text: 0 in place of the server time, because this script does not read the clock; then for each
-- release 1 if it freed the name, or 0 if nothing was done, and the client must use the full script.
-- Invariant: as in release.lua.
local call, answers = redis.call, { '0' }

-- Releases one name; returns its answer. The tag and the id take 36 bytes, so the blank is at byte 38 or later; 4095 is
-- the last byte of the longest of our strings.
local function release(text)
  local blank = text:find(' ', 38, true)
  local expected, lock, side = text:sub(5, blank - 1), text:sub(blank + 1), 'leasehold:{' .. text:sub(1, 4) .. '}'
  if call('EXISTS', side .. 'q' .. lock) == 1 or call('GETRANGE', lock, '0', '4095') ~= expected then
    return '0'
  end
  call('DEL', lock, side .. 'c' .. lock)
  return '1'
end

for i = 1, #ARGV do
  local done, reply = pcall(release, ARGV[i])
  answers[i + 1] = done and reply or '0'
end
return table.concat(answers, ' ')
