-- Extends confirmed exclusive holds: most renewals. Precedes name.lua and renew.lua, which handle every other case;
-- separate, because defining their functions costs more than this.
local function fast_path()
  local values = all_values()
  for at = 1, ITEMS do
    if values[at] == ARGV[3 * at - 1] then
      local lock, ttl = KEYS[at + 1], ARGV[3 * at]
      prolong(lock, tonumber(ttl))
      local record = ARGV[3 * at - 2] .. 'c' .. lock
      if call('PTTL', record) < ttl + ENDED_LIFE / 2 then
        call('PEXPIRE', record, int(ttl + ENDED_LIFE))
      end
      answers[at + 1] = 'extended'
    end
  end
end
