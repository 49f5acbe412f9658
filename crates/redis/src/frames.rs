//! Finds the boundaries of replies in the bytes that a server sends
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>), to enforce the bound on the size of a reply.

use leasehold_core::{Frames, Room, TooLong};

/// The deepest nesting of lists that is accepted, which is the limit of the client library.
const MAX_DEPTH: usize = 100;
/// The memory, in bytes, that a part of a reply (a value, or the header of a list) needs besides its own bytes.
const PART_OVERHEAD: u64 = 64;
/// The longest line with a length or a count that is accepted, in bytes. Servers write neither blanks nor zeros before
/// a number, so none of their lines is longer.
const MAX_NUMBER_LINE: usize = 32;

/// Follows the replies of a connection: how much of the present reply has arrived.
#[derive(Debug)]
pub(crate) struct ReplyFrames {
    /// How many more bytes of memory the present reply is allowed to need.
    memory_left: Room,
    part: Part,
    /// For each open list, the innermost last: how many of its parts are still to come.
    lists: Vec<u64>,
}

/// The position within the part of the reply that is being read: a value, or the header of a list.
#[derive(Debug)]
enum Part {
    /// Before the first byte of a part.
    Start,
    /// In the first line of a part. `kind` is the first byte of the line; `after_return`: the byte read last was a
    /// carriage return.
    Line { kind: u8, digits: Vec<u8>, after_return: bool },
    /// In a text (a bulk string): this many bytes are still to come, including the line end after the text.
    Text(u64),
}

impl ReplyFrames {
    pub(crate) const fn new() -> Self {
        Self { memory_left: Room::whole(), part: Part::Start, lists: Vec::new() }
    }

    /// Whether the bytes so far end at the end of a reply, not within one.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn is_between_replies(&self) -> bool {
        matches!(self.part, Part::Start) && self.lists.is_empty()
    }

    /// Whether a line with a number has just become too long.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn has_too_long_number(&self) -> bool {
        matches!(&self.part, Part::Line { digits, .. } if digits.len() > MAX_NUMBER_LINE)
    }

    /// Follows one byte that is not a part of a text.
    fn follow_byte(&mut self, byte: u8) -> Result<(), TooLong> {
        self.memory_left.take(1)?;
        match &mut self.part {
            Part::Start => {
                // For a part of a list, this room was taken when the header of the list was read.
                if self.lists.is_empty() {
                    self.memory_left.take(PART_OVERHEAD)?;
                }
                self.part = Part::Line { kind: byte, digits: Vec::new(), after_return: false };
            }
            Part::Line { kind, digits, after_return } => {
                if !(*after_return && byte == b'\n') {
                    *after_return = byte == b'\r';
                    if is_counted(*kind) && byte != b'\r' {
                        digits.push(byte);
                        return if digits.len() > MAX_NUMBER_LINE { Err(TooLong) } else { Ok(()) };
                    }
                    return Ok(());
                }
                let kind = *kind;
                let number = if is_counted(kind) { parse_number(digits)? } else { 0 };
                return self.end_line(kind, number);
            }
            // `follow` skips texts as a whole.
            Part::Text(_) => {}
        }
        Ok(())
    }

    /// Handles the end of the first line of a part. A negative number stands for null where the protocol allows null,
    /// and is refused elsewhere.
    fn end_line(&mut self, kind: u8, number: i64) -> Result<(), TooLong> {
        let count = u64::try_from(number);
        match (kind, count) {
            (b'$' | b'*' | b'~' | b'>', Err(_)) => self.end_part(),
            (b'$' | b'!' | b'=', Ok(length)) => {
                // The text and its line end.
                let length = length.checked_add(2).ok_or(TooLong)?;
                self.memory_left.take(length)?;
                self.part = Part::Text(length);
                Ok(())
            }
            (b'*' | b'~' | b'>', Ok(count)) => self.begin_list(count),
            (b'%', Ok(pairs)) => self.begin_list(pairs.checked_mul(2).ok_or(TooLong)?),
            // RESP3: an attribute comes before the value that it describes, so that value is one more part.
            (b'|', Ok(pairs)) => {
                self.begin_list(pairs.checked_mul(2).and_then(|parts| parts.checked_add(1)).ok_or(TooLong)?)
            }
            (b'%' | b'|' | b'!' | b'=', Err(_)) => Err(TooLong),
            _ => self.end_part(),
        }
    }

    /// Begins a list of this many parts.
    fn begin_list(&mut self, parts: u64) -> Result<(), TooLong> {
        // The client library reserves memory for all parts before they arrive.
        self.memory_left.take(parts.checked_mul(PART_OVERHEAD).ok_or(TooLong)?)?;
        if parts == 0 {
            return self.end_part();
        }
        if self.lists.len() >= MAX_DEPTH {
            return Err(TooLong);
        }
        self.lists.push(parts);
        self.part = Part::Start;
        Ok(())
    }

    /// Handles the end of a part. The last part of a list ends the list too.
    fn end_part(&mut self) -> Result<(), TooLong> {
        self.part = Part::Start;
        while let Some(parts_left) = self.lists.last_mut() {
            *parts_left -= 1;
            if *parts_left > 0 {
                return Ok(());
            }
            self.lists.pop();
        }
        self.memory_left = Room::whole();
        Ok(())
    }
}

impl Frames for ReplyFrames {
    fn read_part(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let Part::Text(bytes_left) = &mut self.part {
                let skipped = bytes.len().min(usize::try_from(*bytes_left).unwrap_or(usize::MAX));
                *bytes_left -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                if *bytes_left == 0 {
                    self.end_part()?;
                }
                continue;
            }
            self.follow_byte(byte)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// Whether the first line of a part of this kind is a number: the length of the text or the number of parts that
/// follow.
fn is_counted(kind: u8) -> bool {
    matches!(kind, b'$' | b'*' | b'~' | b'>' | b'%' | b'|' | b'!' | b'=')
}

/// The number in the first line of a part.
fn parse_number(digits: &[u8]) -> Result<i64, TooLong> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse().ok()).ok_or(TooLong)
}

#[cfg(test)]
mod tests {
    use leasehold_core::LONGEST_REPLY;

    use super::*;

    fn followed(bytes: &[u8], chunk_size: usize) -> Result<ReplyFrames, TooLong> {
        let mut replies = ReplyFrames::new();
        bytes.chunks(chunk_size).try_for_each(|bytes| replies.read_part(bytes)).map(|()| replies)
    }

    #[test]
    fn the_end_of_a_reply_is_found_in_any_pieces() {
        for reply in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":7\r\n",
            "_\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "(12345678901234567890123456789012345678901234567890\r\n",
            "$5\r\na\r\nbc\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n+x\r\n",
            "%1\r\n+a\r\n*1\r\n:2\r\n",
            "|1\r\n+a\r\n:2\r\n:3\r\n",
            "~2\r\n:1\r\n:2\r\n",
            ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\nx\r\n\r\n",
            "=7\r\ntxt:abc\r\n",
            "!3\r\nERR\r\n",
        ] {
            for chunk_size in [1, 2, 3, 1024] {
                let twice = reply.repeat(2);
                let (whole, half) = (
                    followed(twice.as_bytes(), chunk_size),
                    followed(&reply.as_bytes()[..reply.len() - 1], chunk_size),
                );
                let is_over = |replies: Result<ReplyFrames, TooLong>| replies.unwrap().is_between_replies();
                assert!(is_over(whole), "{reply:?} in parts of {chunk_size}");
                assert!(!is_over(half), "{reply:?} in parts of {chunk_size}, cut short");
            }
        }
    }

    #[test]
    fn a_header_beyond_the_bound_is_refused() {
        for reply in [
            "$2147483647\r\n",
            "$67108864\r\n",
            "*2147483647\r\n",
            "*1048576\r\n",
            "%9223372036854775807\r\n",
            "|9223372036854775807\r\n",
            "%-1\r\n",
            "=-5\r\n",
            "$x\r\n",
            &format!("${}1\r\n", " ".repeat(MAX_NUMBER_LINE)),
            "*?\r\n",
            "*99999999999999999999\r\n",
            &"*1\r\n".repeat(MAX_DEPTH + 1),
            &format!("*2\r\n$9000000\r\n{}\r\n$60000000\r\n", "x".repeat(9_000_000)),
        ] {
            let shown = &reply[..reply.len().min(40)];
            assert_eq!(followed(reply.as_bytes(), 7).err(), Some(TooLong), "{shown:?}");
        }
        // A smaller reply passes, and the bound applies to each reply separately.
        let long = format!("$30000000\r\n{}\r\n", "x".repeat(30_000_000));
        assert!(followed(long.repeat(3).as_bytes(), 8192).is_ok());
    }

    #[test]
    fn a_reply_without_end_is_refused() {
        let text = format!("$60\r\n{}\r\n", "x".repeat(60));
        for (begin, part) in
            [("+", "x"), ("*1000000\r\n", text.as_str()), ("*2\r\n*1000000\r\n", text.as_str())]
        {
            let mut replies = ReplyFrames::new();
            replies.read_part(begin.as_bytes()).unwrap();
            let (part, mut sent) = (part.repeat(1000), 0);
            while replies.read_part(part.as_bytes()).is_ok() {
                sent += part.len();
                assert!(sent <= LONGEST_REPLY, "{begin:?}");
            }
        }
    }
}
