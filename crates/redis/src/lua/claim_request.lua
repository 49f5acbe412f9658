-- Parses the request text of a claim: see claim.lua.
local parsed = {} -- request text -> its words: most claims of a batch have the same text

-- The request of the item with this number.
local function request_of(i)
  local text = ARGV[3 * i]
  local request = parsed[text]
  if not request then
    request = {}
    request.action, request.mode, request.count, request.limit, request.ttl, request.claim_time, request.entry_life,
      request.may_queue, request.reclaims, request.tokens, request.client = text:match(
      '^(%l+) (%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d) (%d+) (.*)$')
    request.record_life = int(request.ttl + ENDED_LIFE)
    parsed[text] = request
  end
  return request
end

