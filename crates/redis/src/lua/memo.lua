-- The memo of a name: a small record that an exclusive holder wrote. Comes after name.lua.
--
--   <side>m<lock>    STRING  "1 <kind> <id> <number> <token> <print, or -> <bytes>": the claim that wrote it, the
--                            number of the write with 20 digits, the token of the writing guard, the digest in
--                            hexadecimal. Always has an expiry: the end of the memo and REQUEST_LIFE. So the number of
--                            an ended memo stays for as long as an earlier write of the same claim can still arrive.
--                            Anything else is foreign data: it is never changed.
local MEMO = '^1 (%l+) (%x+) (%d+) %d+ %S+ '
local MAX_HEADER_BYTES = 160 -- what is before the bytes of the longest memo
local MAX_MEMO_BYTES = 65536

-- Reads up to `bytes` bytes of a memo. Returns false if there is none; 'foreign' if foreign data is there; otherwise
-- the text, and the kind, id and number in it.
local function read_text(key, bytes)
  local text = redis.pcall('GETRANGE', key, 0, bytes - 1)
  if type(text) == 'table' then
    if text.err:find('WRONGTYPE', 1, true) then
      return 'foreign'
    end
    call('GETRANGE', key, 0, 0) -- raises the error
  elseif text == '' and call('EXISTS', key) == 0 then
    return false
  end
  local kind, id, number = text:match(MEMO)
  if not kind or #id ~= 32 or #number ~= 20 or call('PTTL', key) == -1 then
    return 'foreign'
  end
  return text, kind, id, number
end

-- How long the memo under the key still lasts, in ms; 0 or less if it has ended or there is none.
local function memo_left(key)
  return call('PTTL', key) - REQUEST_LIFE
end

-- Whether the claim holds the name exclusively, and its hold is not broken. `token`: nil for any token.
local function holds(name, id, token)
  local holder = name.record.mode == 'x' and name.record.holder
  return holder and holder.id == id and (not token or int(holder.token) == token)
    and (holder.state == '' or holder.state == '?') and name.value == value_of(holder)
end
