-- Replaces a shared hold by an exclusive one of a new claim, if the name has no other hold and no waiter.
--
-- KEYS 2 lock
-- ARGV 1 to 3 as in claim.lua, for the new claim · 4 <id>.<token> of the shared hold
-- Answers {server time in us, held ... as in claim.lua · taken: another claim holds or waits, or the new claim was
-- released · gone, overwritten, broken: the shared hold is lost · counter or layout, as in claim.lua, or the server's
-- error}.
-- Invariant: no other claim holds the name between; an answer other than held leaves the shared hold as it is, and
-- nothing of the new claim.
local claim = read_claim(1)
if not claim then
  return { now_us, 'layout' }
end
local name, record, new = claim.name, claim.name.record, claim.new
local old_id, token = ARGV[4]:match('^(%x+)%.(%d+)$')

-- What keeps the shared hold from the upgrade; nil if nothing does.
local function refusal_of(old)
  if not old or int(old.token) ~= token then
    return is_overwritten(name) and 'overwritten' or 'gone'
  elseif old.state == '!' then
    return 'broken'
  elseif has_tombstone(name, claim.id) or record.count > 1 or has_queue(name) then
    return 'taken'
  end
  return not newest_token(name) and 'counter' or nil
end

local function answer()
  local holder = hold_of(claim)
  if holder then
    -- A repeated request.
    if holder.state == '!' then
      return 'broken'
    end
    confirm(name, claim.id, claim.ttl)
    return held(claim, holder)
  end
  local old = record.mode == 's' and call('ZSCORE', name.holds, old_id) and read_entry(name, old_id)
  local refused = refusal_of(old)
  if refused then
    return refused
  end
  -- Written first: if the server refuses the tombstone, the hold is as it was.
  add_tombstone(name, old_id)
  remove_holder(name, old_id, old)
  record.mode = nil
  grant(name, claim.id, new, mint(name, new), claim.ttl, '')
  return held(claim, new)
end

begin_writes(name)
bring_up_to_date(claim)
local reply = answer()
save(name, claim.ttl)
return { now_us, reply }
