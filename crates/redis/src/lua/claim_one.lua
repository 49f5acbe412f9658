-- Takes one name that is free and that nobody waits for: most claims that are alone in their request, as in a cluster, where a
-- request is about one slot. Stands before head.lua, claim_quick.lua and all else, and says the same as they would; apart, because
-- defining their functions costs more than this.
if #ARGV == 4 then
  local done, told = pcall(function()
    local ttl, tokens, speaker = ARGV[3]:match('^create x 1 0 (%d+) %d+ %d+ %d (%d+) (.*)$')
    local floor, call, lock, id = tonumber(ARGV[4]), redis.call, KEYS[2], ARGV[2]
    local card = ARGV[1] .. 'c' .. lock
    if not ttl or not floor or call('EXISTS', card, ARGV[1] .. 'd' .. lock) > 0 then
      return nil
    end
    local clock, newest = call('TIME'), call('INCRBY', KEYS[1], tokens)
    local us, before = clock[1] * 1000000 + clock[2], newest - tokens
    if before <= floor or newest > us then
      -- The counter is lost, or ahead of the clock: next_tokens() in head.lua knows what to do.
      call('INCRBY', KEYS[1], '-' .. tokens)
      return nil
    end
    local token = string.format('%.0f', before + 1)
    if not call('SET', lock, id .. '.' .. token, 'NX', 'PX', ttl) then
      return nil
    end
    call('SET', card, '1 ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. token .. ' ' .. tokens .. ' ' .. id .. ' - ' .. speaker,
      'PX', string.format('%d', ttl + 3600000)) -- ENDED_LIFE; small, and quicker than int()
    return { us, 'held ' .. token .. ' ' .. tokens .. ' ' .. ttl .. ' c' }
  end)
  if done and told then
    return told
  end
end
