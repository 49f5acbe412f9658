//! Finds the boundaries of replies in the bytes that a server sends
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>), to enforce the bound on their size.

use leasehold_core::{Frames, Room, TooLong};

/// The deepest nesting of lists: the client library reads no deeper ones.
const DEEPEST: usize = 100;
/// The memory that a part of a reply takes besides its bytes.
const PART: u64 = 64;
/// The longest line with a number, in bytes. Servers write neither blanks nor zeros before a number.
const NUMBER: usize = 32;

/// The reply that is being read.
#[derive(Debug)]
pub(crate) struct Replies {
    room: Room,
    part: Part,
    /// How many parts each open list lacks, the innermost list last.
    lists: Vec<u64>,
}

#[derive(Debug)]
enum Part {
    /// Before the first byte of a part.
    Start,
    /// In the first line of a part of this kind.
    Line { kind: u8, digits: Vec<u8>, returned: bool },
    /// In a text: this many bytes are still to come, including its line end.
    Text(u64),
}

impl Replies {
    pub(crate) const fn new() -> Self {
        Self { room: Room::whole(), part: Part::Start, lists: Vec::new() }
    }

    /// Whether no reply is being read.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.part, Part::Start) && self.lists.is_empty()
    }

    /// Whether a line with a number has just become too long.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn is_at_long_number(&self) -> bool {
        matches!(&self.part, Part::Line { digits, .. } if digits.len() > NUMBER)
    }

    fn byte(&mut self, byte: u8) -> Result<(), TooLong> {
        self.room.take(1)?;
        match &mut self.part {
            Part::Start => {
                // The room for its parts was taken with the header of the list.
                if self.lists.is_empty() {
                    self.room.take(PART)?;
                }
                self.part = Part::Line { kind: byte, digits: Vec::new(), returned: false };
            }
            Part::Line { kind, digits, returned } => {
                if !(*returned && byte == b'\n') {
                    *returned = byte == b'\r';
                    if is_counted(*kind) && byte != b'\r' {
                        digits.push(byte);
                        return if digits.len() > NUMBER { Err(TooLong) } else { Ok(()) };
                    }
                    return Ok(());
                }
                let kind = *kind;
                let number = if is_counted(kind) { number(digits)? } else { 0 };
                return self.line(kind, number);
            }
            // `follow` skips texts as a whole.
            Part::Text(_) => {}
        }
        Ok(())
    }

    /// The first line of a part has ended. A negative number stands for null where the protocol allows it.
    fn line(&mut self, kind: u8, number: i64) -> Result<(), TooLong> {
        let count = u64::try_from(number);
        match (kind, count) {
            (b'$' | b'*' | b'~' | b'>', Err(_)) => self.ended(),
            (b'$' | b'!' | b'=', Ok(length)) => {
                let length = length.checked_add(2).ok_or(TooLong)?;
                self.room.take(length)?;
                self.part = Part::Text(length);
                Ok(())
            }
            (b'*' | b'~' | b'>', Ok(count)) => self.list(count),
            (b'%', Ok(pairs)) => self.list(pairs.checked_mul(2).ok_or(TooLong)?),
            // RESP3: an attribute comes before the value that it describes, so that value is one more part.
            (b'|', Ok(pairs)) => {
                self.list(pairs.checked_mul(2).and_then(|parts| parts.checked_add(1)).ok_or(TooLong)?)
            }
            (b'%' | b'|' | b'!' | b'=', Err(_)) => Err(TooLong),
            _ => self.ended(),
        }
    }

    fn list(&mut self, parts: u64) -> Result<(), TooLong> {
        // The client library reserves room for all of them before they arrive.
        self.room.take(parts.checked_mul(PART).ok_or(TooLong)?)?;
        if parts == 0 {
            return self.ended();
        }
        if self.lists.len() >= DEEPEST {
            return Err(TooLong);
        }
        self.lists.push(parts);
        self.part = Part::Start;
        Ok(())
    }

    /// A part has ended. The last part of a list ends the list.
    fn ended(&mut self) -> Result<(), TooLong> {
        self.part = Part::Start;
        while let Some(lacks) = self.lists.last_mut() {
            *lacks -= 1;
            if *lacks > 0 {
                return Ok(());
            }
            self.lists.pop();
        }
        self.room = Room::whole();
        Ok(())
    }
}

impl Frames for Replies {
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let Part::Text(left) = &mut self.part {
                let here = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= here as u64;
                bytes = bytes.get(here..).unwrap_or_default();
                if *left == 0 {
                    self.ended()?;
                }
                continue;
            }
            self.byte(byte)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// Whether the first line of this kind is a number: the length or the count of what follows.
fn is_counted(kind: u8) -> bool {
    matches!(kind, b'$' | b'*' | b'~' | b'>' | b'%' | b'|' | b'!' | b'=')
}

fn number(digits: &[u8]) -> Result<i64, TooLong> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse().ok()).ok_or(TooLong)
}

#[cfg(test)]
mod tests {
    use leasehold_core::LONGEST_REPLY;

    use super::*;

    fn followed(bytes: &[u8], at_once: usize) -> Result<Replies, TooLong> {
        let mut replies = Replies::new();
        bytes.chunks(at_once).try_for_each(|bytes| replies.follow(bytes)).map(|()| replies)
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
            for at_once in [1, 2, 3, 1024] {
                let twice = reply.repeat(2);
                let (whole, half) = (
                    followed(twice.as_bytes(), at_once),
                    followed(&reply.as_bytes()[..reply.len() - 1], at_once),
                );
                let is_over = |replies: Result<Replies, TooLong>| replies.unwrap().is_between();
                assert!(is_over(whole), "{reply:?} in parts of {at_once}");
                assert!(!is_over(half), "{reply:?} in parts of {at_once}, cut short");
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
            &format!("${}1\r\n", " ".repeat(NUMBER)),
            "*?\r\n",
            "*99999999999999999999\r\n",
            &"*1\r\n".repeat(DEEPEST + 1),
            &format!("*2\r\n$9000000\r\n{}\r\n$60000000\r\n", "x".repeat(9_000_000)),
        ] {
            let shown = &reply[..reply.len().min(40)];
            assert_eq!(followed(reply.as_bytes(), 7).err(), Some(TooLong), "{shown:?}");
        }
        // A smaller reply passes, and each reply has the whole bound.
        let long = format!("$30000000\r\n{}\r\n", "x".repeat(30_000_000));
        assert!(followed(long.repeat(3).as_bytes(), 8192).is_ok());
    }

    #[test]
    fn a_reply_without_end_is_refused() {
        let text = format!("$60\r\n{}\r\n", "x".repeat(60));
        for (begin, part) in
            [("+", "x"), ("*1000000\r\n", text.as_str()), ("*2\r\n*1000000\r\n", text.as_str())]
        {
            let mut replies = Replies::new();
            replies.follow(begin.as_bytes()).unwrap();
            let (part, mut sent) = (part.repeat(1000), 0);
            while replies.follow(part.as_bytes()).is_ok() {
                sent += part.len();
                assert!(sent <= LONGEST_REPLY, "{begin:?}");
            }
        }
    }
}
