-- Lists keys, one step of SCAN at a time. A key that is too long for one of our names is left out, because a reply with
-- such keys has no bound. Writes nothing.
--
-- KEYS none, so that each of several servers can answer for its own keys
-- ARGV 1 cursor · 2 pattern · 3 number of keys to look at
-- Answers {server time in us, next cursor, keys}.
local page, keys = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3]), {}
for _, key in ipairs(page[2]) do
  if #key < MAX_STRING_BYTES then
    keys[#keys + 1] = key
  end
end
return { now_us, page[1], keys }
