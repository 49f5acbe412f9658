-- The texts of records and entries, in words or msgpack: head.lua lists the words, name.lua the fields. Comes before
-- name.lua.
local VERSION = 1

-- A value that another program wrote may be no msgpack, or msgpack of something else than a table.
local function unpacked(raw)
  local is_packed, table_of = pcall(cmsgpack.unpack, raw)
  if is_packed and type(table_of) == 'table' then
    return table_of
  end
  error('ERR cannot read what is packed', 0)
end

-- Parses the text of a record, in words or msgpack.
local function read_record(text)
  local seconds, micros, token, tokens, id, state, channel, owner = text:match(
    '^1 (%d+) (%d+) (%d+) (%d+) (%x+) (%S) (%S+) (.*)$')
  if not seconds then
    return unpacked(text)
  end
  return {
    v = VERSION, mode = 'x', limit = 0, newest = token + tokens - 1, holder = {
      id = id, token = tonumber(token), tokens = tonumber(tokens), since = seconds * 1000000 + micros, prev = 'c',
      owner = owner, state = state == '?' and state or '', channel = channel,
    },
  }
end

-- The record of a plain hold in words, so that the fast paths understand it.
local function in_words(record)
  local holder = record.holder
  if record.mode ~= 'x' or record.ended or record.run or record.relied or holder.prev ~= 'c'
    or holder.state ~= '' and holder.state ~= '?' or not holder.channel
  then
    return nil
  end
  return table.concat({
    VERSION, int(math.floor(holder.since / 1000000)), int(holder.since % 1000000), int(holder.token), holder.tokens,
    holder.id, holder.state == '?' and '?' or '-', holder.channel, holder.owner,
  }, ' ')
end

-- Reads the entry of a claim; nil if it has none.
local function read_entry(name, id)
  local raw = call('HGET', name.entries, id)
  local since, claim, tokens, channel, owner = (raw or ''):match('^1 (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not since then
    return raw and unpacked(raw) or nil
  end
  return {
    mode = 'x', count = 1, limit = 0, claim = tonumber(claim), tokens = tonumber(tokens), channel = channel,
    owner = owner, since = tonumber(since), state = 'waiting',
  }
end

-- Writes the entry of a claim: in words if it is a waiter of mode x.
local function write_entry(name, id, entry)
  local has_words = entry.mode == 'x' and entry.state == 'waiting' and not entry.till
  local words = has_words and table.concat({
    VERSION, int(entry.since), int(entry.claim), int(entry.tokens), entry.channel, entry.owner,
  }, ' ')
  call('HSET', name.entries, id, words or cmsgpack.pack(entry))
end

