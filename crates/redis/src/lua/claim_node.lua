-- Claims free names without waiters, in any slots of one node of a cluster: most claims. A request can declare keys of
-- one slot only, and half of the cost of a short script is its call, so this script declares none.
--
-- While a slot is migrating to another node, some keys of a name may be at that node, and this node refuses a command
-- about a key that is missing here. So the first command about a name asks for keys that are missing if the name is
-- free: if this command is not refused, all keys of the slot are on this node until the script ends. A refused claim,
-- and every other case, is left to the full script, which declares its keys.
--
-- KEYS none
-- ARGV 1 the server's microseconds when the connection was made · 2 the part of a counter's key after the tag; then
--      texts of two kinds: "=" and the request of the claims after it: ttl ms, tokens, channel, owner, with the channel
--      of a slot without its tag and the text before that; or a claim: tag (4 letters), id (32), lock
-- Answers in one text, which is cheaper to write and to read than a list: the server time in us, or 0 for none, then a
-- number for each claim: its first token, negative if it got only that one token; 0 if nothing was done, and the client
-- must use the full script.
-- Invariant: as in claim.lua. In the variables below, after `answers`, are the words of the latest request: `life` is
-- the lifetime of a record, `tagged` is true if the channel in `client` lacks the text up to its tag.
local answers, ttl, tokens, client, life, tagged = { int(now_us) }, nil, nil, nil, nil, false

-- Claims one name; returns its answer.
local function claim_name(text)
  local side, id, lock = 'leasehold:{' .. text:sub(1, 4) .. '}', text:sub(5, 36), text:sub(37)
  local record, counter = side .. 'c' .. lock, side .. ARGV[2]
  if call('EXISTS', record, side .. 'd' .. lock) > 0 then
    return '0'
  end
  local first, minted = mint(counter, tokens, 1)
  if not first then
    return '0'
  end
  local token = int(first)
  if not call('SET', lock, id .. '.' .. token, 'NX', 'PX', ttl) then
    return '0'
  end
  local full_client = tagged and 'leasehold:{' .. text:sub(1, 4) .. client or client
  call('SET', record, since .. token .. ' ' .. minted .. ' ' .. id .. ' - ' .. full_client, 'PX', life)
  return minted == tokens and token or '-' .. token
end

for i = 3, #ARGV do
  local text = ARGV[i]
  if text:byte() == 61 then -- '='
    ttl, tokens, client = text:match('^=(%d+) (%d+) (.*)$')
    tokens = tonumber(tokens)
    life, tagged = int(ttl + ENDED_LIFE), client:byte() == 125 -- '}'
  else
    local done, reply = pcall(claim_name, text)
    answers[#answers + 1] = done and reply or '0'
  end
end
return table.concat(answers, ' ')
