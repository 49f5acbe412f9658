-- Locks of the recipe from before SET had an expiry: SETNX <lock> <time>. The key has no expiry, its value is the time
-- at which the lock ends, in seconds or milliseconds since 1970, perhaps with a fraction. Comes after name.lua.

local STALE_MARGIN = 5000      -- for how long the time must be over, in ms: more than the clocks of machines differ
local MAX_DEADLINE_BYTES = 32  -- a longer value is no time

-- For how long the time in the value of a foreign key without expiry has been over by the server's clock, in ms; nil if
-- the value is no time, if the time has not been over for longer than the margin, or if the value replaced a hold of
-- ours on which a client may still rely. A number of 10 digits is in seconds, one of 13 digits in milliseconds: so both
-- are of the years 2001 to 2286.
local function overdue(name)
  local value = not name.is_no_lock and name.value
  if type(value) ~= 'string' or #value > MAX_DEADLINE_BYTES or call('PTTL', name.lock) ~= -1
    or relied_until(name) > now_ms
  then
    return nil
  end
  local whole = value:match('^([1-9]%d*)$') or value:match('^([1-9]%d*)%.%d+$')
  local ends_at = whole and (#whole == 10 and whole * 1000 or #whole == 13 and tonumber(whole))
  local over = ends_at and now_ms - ends_at
  return over and over > STALE_MARGIN and over or nil
end

-- Ends a foreign lock whose time is over. The value that is judged is the value that is deleted: no other command runs
-- during a script, so a program that stored a new time before this script keeps its lock.
local function reclaim(name)
  if overdue(name) then
    drop_lock(name)
    note_end(name, name.record.newest or 0, 'l')
  end
end

