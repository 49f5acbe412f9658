-- Claims a free name without waiters, if the claim is alone in its request. Comes before claim_free_head.lua and
-- claim_free.lua or claim_node.lua, and has the same arguments and answers as claim_free.lua or claim_node.lua. It is a
-- separate file, because defining the functions of those files takes longer than this whole file. After an error or a
-- nil here, those files handle the claim.
if #ARGV == 4 then
  local done, reply = pcall(function()
    local call, text, floor = redis.call, ARGV[4], tonumber(ARGV[1])
    local side, id, lock = 'leasehold:{' .. text:sub(1, 4) .. '}', text:sub(5, 36), text:sub(37)
    local record = side .. 'c' .. lock
    if call('EXISTS', record, side .. 'd' .. lock) > 0 then
      return '0 0'
    end
    local ttl, tokens, client = ARGV[3]:match('^=(%d+) (%d+) (.*)$')
    local counter = KEYS[1] or side .. ARGV[2]
    local clock, newest = call('TIME'), call('INCRBY', counter, tokens)
    local now_us, before = clock[1] * 1000000 + clock[2], newest - tokens
    if before <= floor or newest > now_us then
      -- The counter is lost, or ahead of the clock: mint() in claim_free_head.lua handles this.
      call('INCRBY', counter, '-' .. tokens)
      return nil
    end
    local token = string.format('%.0f', before + 1)
    if not call('SET', lock, id .. '.' .. token, 'NX', 'PX', ttl) then
      return '0 0'
    end
    -- If `client` begins with '}' (125), its channel is one of the slot: the text up to the tag is left out.
    local channel_start = client:byte() == 125 and 'leasehold:{' .. text:sub(1, 4) or ''
    call('SET', record, '1 ' .. clock[1] .. ' ' .. clock[2] .. ' ' .. token .. ' ' .. tokens .. ' ' .. id .. ' - '
      .. channel_start .. client, 'PX', string.format('%d', ttl + 3600000)) -- ENDED_LIFE; '%d': faster than '%.0f'
    return string.format('%.0f', now_us) .. ' ' .. token
  end)
  if done and reply then
    return reply
  end
end
