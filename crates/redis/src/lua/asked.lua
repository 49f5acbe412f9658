-- Parses the request text of a claim: see claim.lua.
local parsed = {} -- request text -> its words: most claims of a batch have the same text

-- The request of the item at this position.
local function asked(at)
  local text = ARGV[3 * at]
  local a = parsed[text]
  if not a then
    a = {}
    a.how, a.mode, a.count, a.limit, a.ttl, a.claim, a.entry_life, a.may_queue, a.tokens, a.client = text:match(
      '^(%l+) (%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (.*)$')
    a.record_life = int(a.ttl + ENDED_LIFE)
    parsed[text] = a
  end
  return a
end

