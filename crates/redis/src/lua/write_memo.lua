-- Writes the memo of a name under an exclusive hold, and ends the hold if asked to.
--
-- KEYS 2 lock
-- ARGV 1 side · 2 <id>.<token> of the hold · 3 keep, or the words of a release as in release.lua · 4 the memo up to its
--      bytes: see memo.lua · 5 for how long the memo is kept, in ms · 6 its bytes
-- Answers {server time in us, done · unwoken: done, but wake_waiters() failed · overtaken: the claim does not hold the
-- name with this token · kind <kind of the stored memo> · foreign · partial <error>: the memo is stored and the hold
-- has ended, but the release failed then · or the server's error}.
-- Invariant: nothing is changed unless the claim holds the name with this token; nobody finds the name free without the
-- memo; an answer other than done, unwoken and partial has changed nothing of the memo.
local id, token = ARGV[2]:match('^(%x+)%.(%d+)$')
local key = ARGV[1] .. 'm' .. KEYS[2]
local kind, number = ARGV[4]:match('^1 (%l+) %x+ (%d+) ')
local name = load(KEYS[2], ARGV[1])
if not name or not holds(name, id, token) then
  return { now_us, 'overtaken' }
end
local old, old_kind, old_id, old_number = read_text(key, MAX_HEADER_BYTES)
if old == 'foreign' then
  return { now_us, 'foreign' }
elseif old and old_kind ~= kind and memo_left(key) > 0 then
  return { now_us, 'kind ' .. old_kind }
end

-- A smaller number than that of the stored memo of the same claim, also if that memo has ended: this request is late.
-- The numbers are texts of one length, because they can be too large for a number of this language.
local is_late = old and old_id == id and number < old_number
local was, left = old and not is_late and call('GET', key), call('PTTL', key)
if ARGV[3] ~= 'keep' then
  -- If a side key that the release needs has foreign data, the script ends here, before the first write.
  for _, set in ipairs({ name.queue, name.entry_ends, name.tombstones }) do
    call('ZSCORE', set, id)
  end
  call('HGET', name.entries, id)
end
if not is_late then
  -- The first write of the script: a server without memory refuses it, and so the whole script.
  call('SET', key, ARGV[4] .. ARGV[6], 'PX', int(ARGV[5] + REQUEST_LIFE))
end
if ARGV[3] == 'keep' then
  if is_late then
    begin_writes(name) -- so a server that was replaced and accepts no writes refuses the script
  end
  notify_followers(ARGV[1], KEYS[2])
  return { now_us, 'done' }
end
local released, reply = pcall(release_item, 1)
if released and (reply == 'freed' or reply == 'unwoken') then
  notify_followers(ARGV[1], KEYS[2])
  return { now_us, reply == 'freed' and 'done' or reply }
end

-- The release failed. If the hold goes on, the memo is again as it was.
local failure = type(reply) == 'table' and reply.err or tostring(reply)
find_lock(name)
if not holds(name, id, token) then
  return { now_us, 'partial ' .. failure }
elseif was and left > 0 then
  call('SET', key, was, 'PX', left)
elseif not is_late then
  call('DEL', key)
end
return { now_us, failure }
