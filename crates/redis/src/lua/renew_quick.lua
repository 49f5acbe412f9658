-- Extends confirmed exclusive holds: most renewals. Comes before name.lua and renew.lua, which handle every other case.
-- It is a separate file, because defining the functions of those files takes longer than this whole file. Leaves
-- `answers` empty for all other renewals.
local function fast_path()
  local values = all_values()
  for i = 1, ITEM_COUNT do
    if values[i] == ARGV[3 * i - 1] then
      local lock, ttl = KEYS[i + 1], ARGV[3 * i]
      local left = prolong(lock, tonumber(ttl))
      local record = ARGV[3 * i - 2] .. 'c' .. lock
      if call('PTTL', record) < ttl + ENDED_LIFE - RECORD_SLACK then
        call('PEXPIRE', record, int(ttl + ENDED_LIFE))
      end
      answers[i + 1] = 'extended ' .. int(left)
    end
  end
end
