//! Follows the message boundaries in the bytes from a server
//! (<https://www.postgresql.org/docs/15/protocol-message-formats.html>), to bound the size of one answer. Pure.

use std::collections::HashSet;

use leasehold_core::{Frames, Room, TooLong};

/// The size of a message's header: one byte for the kind, and four for the length, which includes these four.
const HEAD: usize = 5;
/// The memory that a message takes beside its bytes.
const MESSAGE: u64 = 64;
/// The longest setting that a server may report, and the maximum number of settings. The driver keeps the newest
/// value of each for the whole life of the connection: together they stay below the bound of one answer.
const LONGEST_SETTING: u64 = 64 << 10;
const MOST_SETTINGS: usize = 1000;

/// How a server asks for the password, from the strongest method to the weakest. Each is also the error that explains
/// what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Login {
    #[error("it asks for a proof of the password")]
    Scram,
    /// An eavesdropper can find the password by trying.
    #[error(
        "it asks for the md5 of the password, which others could read: give it TLS, or store the password as scram-sha-256"
    )]
    Md5,
    #[error(
        "it asks for the password in cleartext, and its identity is not verified: add sslmode=verify-full to the URL"
    )]
    Cleartext,
}

/// The answer that is being read.
#[derive(Debug)]
pub(crate) struct Messages {
    head: [u8; HEAD],
    /// How many bytes of the header have arrived.
    filled: usize,
    /// How many bytes of the message body are still to come.
    left: u64,
    /// Whether the server was ever ready for requests.
    begun: bool,
    /// The rest of the bound: the driver keeps all messages of an answer until the server is ready for the next
    /// request.
    answer: Room,
    /// The name of the setting that is being reported, as far as it has arrived.
    name: Option<Vec<u8>>,
    /// The names of the settings that the server has reported.
    settings: HashSet<Vec<u8>>,
    /// The first bytes of the login request of the server, as far as they have arrived.
    asks: Vec<u8>,
    /// The weakest login method that is accepted, and a weaker one that the server asked for.
    weakest: Login,
    refused: Option<Login>,
}

impl Messages {
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD],
            filled: 0,
            left: 0,
            begun: false,
            answer: Room::whole(),
            name: None,
            settings: HashSet::new(),
            asks: Vec::new(),
            weakest: Login::Cleartext,
            refused: None,
        }
    }

    /// Hides a request for a weaker login method from the driver.
    pub(crate) fn no_weaker_than(self, weakest: Login) -> Self {
        Self { weakest, ..self }
    }

    /// The login method that is too weak, if the server asked for one.
    pub(crate) fn refused(&self) -> Option<Login> {
        self.refused
    }

    fn begins(&mut self) -> Result<(), TooLong> {
        let [kind, length @ ..] = self.head;
        let length = u64::from(u32::from_be_bytes(length));
        self.left = length.checked_sub(HEAD as u64 - 1).ok_or(TooLong)?;
        let takes = length + MESSAGE;
        match kind {
            // The driver passes notifications and notices on at once; those before the first request it keeps.
            b'A' | b'N' if self.begun => Room::whole().take(takes),
            b'R' => {
                self.asks.clear();
                self.answer.take(takes)
            }
            b'S' if length > LONGEST_SETTING => Err(TooLong),
            b'S' => {
                self.name = Some(Vec::new());
                Ok(())
            }
            b'Z' => {
                self.answer.take(takes)?;
                (self.answer, self.begun) = (Room::whole(), true);
                Ok(())
            }
            _ => self.answer.take(takes),
        }
    }

    /// The next bytes of a message body.
    fn body(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if let [b'R', ..] = self.head {
            return self.asked(bytes);
        }
        let Some(name) = &mut self.name else { return Ok(()) };
        let end = bytes.iter().position(|&byte| byte == 0);
        name.extend(bytes.iter().take(end.unwrap_or(bytes.len())));
        if end.is_none() {
            return Ok(());
        }
        self.settings.extend(self.name.take());
        if self.settings.len() > MOST_SETTINGS { Err(TooLong) } else { Ok(()) }
    }
}

impl Messages {
    /// The next bytes of the login request of the server.
    fn asked(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let missing = size_of::<u32>().saturating_sub(self.asks.len());
        self.asks.extend(bytes.iter().take(missing));
        let login = match *self.asks {
            [0, 0, 0, 3] => Login::Cleartext,
            [0, 0, 0, 5] => Login::Md5,
            _ => return Ok(()),
        };
        if login <= self.weakest {
            return Ok(());
        }
        self.refused = Some(login);
        Err(TooLong)
    }
}

impl Frames for Messages {
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let here = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                let (body, rest) = bytes.split_at(here);
                self.body(body)?;
                self.left -= here as u64;
                bytes = rest;
                continue;
            }
            self.name = None;
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = byte;
                self.filled += 1;
            }
            bytes = rest;
            if self.filled == HEAD {
                self.filled = 0;
                self.begins()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::LONGEST_REPLY;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    /// How many of these messages pass, at most four times as many as the bound allows.
    fn passed(messages: &mut Messages, bytes: &[u8]) -> usize {
        let most = 4 * LONGEST_REPLY / bytes.len();
        (0..most)
            .take_while(|_| bytes.chunks(1000).try_for_each(|part| messages.follow(part)).is_ok())
            .count()
    }

    /// A connection on which the server was ready for requests.
    fn begun() -> Messages {
        let mut messages = Messages::new();
        messages.follow(&message(b'Z', b"I")).unwrap();
        messages
    }

    #[test]
    fn each_reply_has_the_whole_bound() {
        let answer = [
            message(b'1', b""),
            message(b'D', &[7; 30_000_000]),
            message(b'D', &[7; 30_000_000]),
            message(b'Z', b"I"),
        ]
        .concat();
        for at_once in [1000, 4096, answer.len()] {
            let mut messages = Messages::new();
            for part in answer.repeat(2).chunks(at_once) {
                messages.follow(part).unwrap();
            }
            assert_eq!((messages.left, messages.filled), (0, 0));
        }
        let mut slowly = Messages::new();
        let answer = [message(b'R', &[0; 4]), message(b'Z', b"I"), message(b'A', b"xyz")].concat();
        answer.iter().for_each(|&byte| slowly.follow(&[byte]).unwrap());
        assert_eq!((slowly.left, slowly.filled, slowly.begun), (0, 0, true));
    }

    #[test]
    fn a_too_large_header_is_refused() {
        for head in [
            &b"R\x7f\xff\xff\xff"[..],
            b"D\xff\xff\xff\xff",
            b"D\x04\x00\x00\x00",
            b"S\x00\x01\x00\x01",
            b"Z\x00\x00\x00\x03",
            b"HTTP/",
        ] {
            assert_eq!(Messages::new().follow(head), Err(TooLong), "{head:?}");
        }
    }

    #[test]
    fn a_weak_login_is_refused() {
        let notice = message(b'N', b"SWARNING\0\0");
        for (asks, login) in
            [(3_u32, Login::Cleartext), (5, Login::Md5), (10, Login::Scram), (0, Login::Scram)]
        {
            let login_asked = message(b'R', &[&asks.to_be_bytes()[..], b"salt"].concat());
            let bytes = [&notice[..], &login_asked, &message(b'R', &[0; 4])].concat();
            for weakest in [Login::Scram, Login::Md5, Login::Cleartext] {
                for at_once in [1, 3, bytes.len()] {
                    let mut messages = Messages::new().no_weaker_than(weakest);
                    let followed = bytes.chunks(at_once).try_for_each(|part| messages.follow(part));
                    assert_eq!(followed.is_err(), login > weakest, "{asks} where {weakest:?} is the weakest");
                    assert_eq!(messages.refused(), (login > weakest).then_some(login));
                }
            }
        }
    }

    #[test]
    fn an_endless_reply_is_refused_but_notifications_are_not() {
        let row = message(b'D', &[7; 1000]);
        assert!(passed(&mut Messages::new(), &row) <= LONGEST_REPLY / row.len());
        // Empty rows take memory, too.
        let nothing = message(b'D', b"\0\0");
        assert!(passed(&mut Messages::new(), &nothing) * 64 <= LONGEST_REPLY);
        for kind in [b'A', b'N'] {
            let notification = message(kind, &[7; 100_000]);
            assert!(
                passed(&mut Messages::new(), &notification) <= LONGEST_REPLY / notification.len(),
                "before the first request"
            );
            assert_eq!(passed(&mut begun(), &notification), 4 * LONGEST_REPLY / notification.len());
        }
    }

    /// A server may report a setting after each transaction that changed it, for as long as the connection lasts.
    #[test]
    fn the_number_of_settings_is_bounded() {
        let setting = message(b'S', &[b"search_path\0".as_slice(), &[b'x'; 60_000], b"\0"].concat());
        assert_eq!(passed(&mut begun(), &setting), 4 * LONGEST_REPLY / setting.len());
        let mut messages = begun();
        let reported = (0..).take_while(|number| {
            let setting = message(b'S', format!("setting{number}\0on\0").as_bytes());
            setting.chunks(3).try_for_each(|part| messages.follow(part)).is_ok()
        });
        assert_eq!(reported.count(), MOST_SETTINGS);
    }
}
