-- Claims several names together: all of them, or none.
--
-- KEYS 2.. a lock for each claim; no two claims have the same lock
-- ARGV as in claim.lua; each claim is one to create, and may not queue
-- Answers {server time in us, then either held ... for each claim, as in claim.lua, or, if one claim is not granted:
--   none
--   its number, from 0 on
--   1 if a claim of this request holds or waits: from an earlier request, or because this script failed; otherwise 0
--   the answer to it: taken, gone, clash, counter or layout, as in claim.lua, or the server's error}.
-- Invariant: as in claim.lua; and nothing is granted before it is known that every claim can be granted.
local claims = {}
local in_the_way = 1 -- the number of the claim that is looked at
local leaves = 0     -- 1: a claim of this request has something here

-- Returns the answer that refuses the claim with this number; nil if it can be granted or holds already.
local function look_at(i)
  local claim = read_claim(i)
  if not claim then
    return 'layout'
  end
  local name = claim.name
  bring_up_to_date(claim)
  -- Saved now: what has expired is recorded, whatever becomes of the other claims.
  save(name)
  claims[i], claim.hold = claim, hold_of(claim)
  if claim.hold then
    leaves = 1
    return claim.hold.state == '!' and 'gone' or nil
  elseif read_entry(name, claim.id) then
    -- The claim waits, by an earlier request.
    leaves = 1
    return hint(claim, 'taken', call('ZRANK', name.queue, claim.id) or 0)
  end
  local refused, waiters = refusal(claim)
  return refused == 'taken' and hint(claim, refused, waiters) or refused
end

-- Grants a claim; returns the answer. A claim that holds keeps its grant, and the hold is extended.
local function take(claim)
  local name = claim.name
  if claim.hold then
    confirm(name, claim.id, claim.ttl)
  else
    grant(name, claim.id, claim.new, mint(name, claim.new), claim.ttl, '')
  end
  save(name, claim.ttl)
  return held(claim, claim.hold or claim.new)
end

-- Looks whether a claim from this number on has something here, by an earlier request. A name that cannot be read is
-- not the one that is in the way, and may have something.
local function look_for_leftovers(first)
  for i = first, ITEM_COUNT do
    local is_read, has_something = pcall(function()
      local claim = read_claim(i)
      return claim and (hold_of(claim) or read_entry(claim.name, claim.id))
    end)
    if has_something or not is_read then
      leaves = 1
    end
  end
end

local done, refused = pcall(function()
  for i = 1, ITEM_COUNT do
    in_the_way = i
    local refused = look_at(i)
    if refused then
      return refused
    end
  end
  for i, claim in ipairs(claims) do
    in_the_way, leaves = i, 1
    answers[i + 1] = take(claim)
  end
end)
if done and not refused then
  return answers
elseif not done then
  refused = type(refused) == 'table' and refused.err or tostring(refused)
end
look_for_leftovers(in_the_way + 1)
return { now_us, 'none', in_the_way - 1, leaves, refused }
