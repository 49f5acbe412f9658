//! Follows the message boundaries in the bytes from a server
//! (<https://www.postgresql.org/docs/15/protocol-message-formats.html>), to bound the size of one answer. Pure.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use leasehold_core::{Frames, Room, TooLong};

/// The size of a message's header: one byte for the kind, and four for the length, which includes these four.
const HEADER_LENGTH: usize = 5;
/// The memory that the driver needs for a message beside its bytes.
const MESSAGE_OVERHEAD: u64 = 64;
/// The maximum size of a setting that a server reports. The driver keeps the newest value of each setting as long as
/// the connection lives. This limit and [`MAX_SETTINGS`] keep all settings together below the bound of one answer.
const MAX_SETTING: u64 = 64 << 10;
/// The maximum number of settings.
const MAX_SETTINGS: usize = 1000;

// The kinds of messages, each the first byte of a message.
const NOTIFICATION: u8 = b'A';
const NOTICE: u8 = b'N';
const AUTHENTICATION: u8 = b'R';
const PARAMETER_STATUS: u8 = b'S';
const BACKEND_KEY_DATA: u8 = b'K';
const READY_FOR_QUERY: u8 = b'Z';
/// The code of an authentication message that asks for the password in cleartext.
const ASK_CLEARTEXT: [u8; 4] = [0, 0, 0, 3];
/// The code of an authentication message that asks for the md5 of the password.
const ASK_MD5: [u8; 4] = [0, 0, 0, 5];

/// How a server asks for the password, from the strongest method to the weakest. Each method is also the error with
/// which a connection refuses the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum LoginMethod {
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

/// The state of reading one answer, message by message.
#[derive(Debug)]
pub(crate) struct Messages {
    /// The header of the current message, as far as it has arrived.
    header: [u8; HEADER_LENGTH],
    /// How many bytes of the header have arrived.
    header_filled: usize,
    /// How many bytes of the message body are still to come.
    body_left: u64,
    /// Whether the server was ever ready for requests.
    was_ready: bool,
    /// How many more bytes the answer is allowed to have: the driver keeps all messages of an answer until the server
    /// is ready for the next request.
    answer_room: Room,
    /// The name of the setting that is being reported, as far as it has arrived.
    setting_name: Option<Vec<u8>>,
    /// The names of the settings that the server has reported.
    settings: HashSet<Vec<u8>>,
    /// The first bytes of the login request of the server, as far as they have arrived.
    login_request: Vec<u8>,
    /// The weakest login method that is accepted.
    weakest: LoginMethod,
    /// A weaker method that the server asked for.
    refused: Option<LoginMethod>,
    /// The first bytes of the message with the number of the session's process, as far as they have arrived.
    key_data: Vec<u8>,
    /// The number of the process that serves this session, as the other side announced it at the login. Shared with
    /// those who read it after the driver has taken the stream.
    announced_process: Arc<OnceLock<i32>>,
}

impl Messages {
    pub(crate) fn new() -> Self {
        Self {
            header: [0; HEADER_LENGTH],
            header_filled: 0,
            body_left: 0,
            was_ready: false,
            answer_room: Room::whole(),
            setting_name: None,
            settings: HashSet::new(),
            login_request: Vec::new(),
            weakest: LoginMethod::Cleartext,
            refused: None,
            key_data: Vec::new(),
            announced_process: Arc::default(),
        }
    }

    /// The number of the server's process that serves this session, as it is announced at the end of the login.
    pub(crate) fn announced_process(&self) -> Arc<OnceLock<i32>> {
        Arc::clone(&self.announced_process)
    }

    /// Refuses a server that asks for a weaker login method: the driver does not see the request.
    pub(crate) fn refuse_weaker_than(self, weakest: LoginMethod) -> Self {
        Self { weakest, ..self }
    }

    /// The login method that is too weak, if the server asked for one.
    pub(crate) fn refused(&self) -> Option<LoginMethod> {
        self.refused
    }

    /// Handles the complete header of a message: counts the message towards the bound of the answer.
    fn begin_message(&mut self) -> Result<(), TooLong> {
        let [kind, length @ ..] = self.header;
        let length = u64::from(u32::from_be_bytes(length));
        self.body_left = length.checked_sub(HEADER_LENGTH as u64 - 1).ok_or(TooLong)?;
        let message_size = length + MESSAGE_OVERHEAD;
        match kind {
            // After the server was ready for the first time, the driver passes each notification and notice on at once,
            // so only the size of each counts. Before that time the driver keeps all of them.
            NOTIFICATION | NOTICE if self.was_ready => Room::whole().take(message_size),
            AUTHENTICATION => {
                self.login_request.clear();
                self.answer_room.take(message_size)
            }
            PARAMETER_STATUS if length > MAX_SETTING => Err(TooLong),
            PARAMETER_STATUS => {
                self.setting_name = Some(Vec::new());
                Ok(())
            }
            READY_FOR_QUERY => {
                self.answer_room.take(message_size)?;
                (self.answer_room, self.was_ready) = (Room::whole(), true);
                Ok(())
            }
            _ => self.answer_room.take(message_size),
        }
    }

    /// Handles the next bytes of a message body.
    fn read_body(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        match self.header {
            [AUTHENTICATION, ..] => return self.read_login_request(bytes),
            [BACKEND_KEY_DATA, ..] => {
                self.read_key_data(bytes);
                return Ok(());
            }
            _ => {}
        }
        let Some(setting_name) = &mut self.setting_name else { return Ok(()) };
        let end = bytes.iter().position(|&byte| byte == 0);
        setting_name.extend(bytes.iter().take(end.unwrap_or(bytes.len())));
        if end.is_none() {
            return Ok(());
        }
        self.settings.extend(self.setting_name.take());
        if self.settings.len() > MAX_SETTINGS { Err(TooLong) } else { Ok(()) }
    }
}

impl Messages {
    /// Handles the next bytes of the login request of the server; fails if the requested method is too weak.
    fn read_login_request(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let missing = size_of::<u32>().saturating_sub(self.login_request.len());
        self.login_request.extend(bytes.iter().take(missing));
        let login = match <[u8; 4]>::try_from(self.login_request.as_slice()) {
            Ok(ASK_CLEARTEXT) => LoginMethod::Cleartext,
            Ok(ASK_MD5) => LoginMethod::Md5,
            _ => return Ok(()),
        };
        if login <= self.weakest {
            return Ok(());
        }
        self.refused = Some(login);
        Err(TooLong)
    }
}

impl Messages {
    /// Handles the next bytes of the message whose first four bytes are the number of the process.
    fn read_key_data(&mut self, bytes: &[u8]) {
        let missing = size_of::<i32>().saturating_sub(self.key_data.len());
        self.key_data.extend(bytes.iter().take(missing));
        if let Ok(process) = <[u8; 4]>::try_from(self.key_data.as_slice()) {
            // A server announces it once; a second announcement is not read.
            self.announced_process.get_or_init(|| i32::from_be_bytes(process));
        }
    }
}

impl Frames for Messages {
    fn read_part(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.body_left > 0 {
                let in_this_part = bytes.len().min(usize::try_from(self.body_left).unwrap_or(usize::MAX));
                let (body_part, rest) = bytes.split_at(in_this_part);
                self.read_body(body_part)?;
                self.body_left -= in_this_part as u64;
                bytes = rest;
                continue;
            }
            self.setting_name = None;
            if let Some(header_byte) = self.header.get_mut(self.header_filled) {
                *header_byte = byte;
                self.header_filled += 1;
            }
            bytes = rest;
            if self.header_filled == HEADER_LENGTH {
                self.header_filled = 0;
                self.begin_message()?;
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

    /// How often this message passes; it is tried at most four times as often as the bound allows.
    fn passed(messages: &mut Messages, bytes: &[u8]) -> usize {
        let most = 4 * LONGEST_REPLY / bytes.len();
        (0..most)
            .take_while(|_| bytes.chunks(1000).try_for_each(|part| messages.read_part(part)).is_ok())
            .count()
    }

    /// A connection on which the server was ready for requests.
    fn was_ready() -> Messages {
        let mut messages = Messages::new();
        messages.read_part(&message(b'Z', b"I")).unwrap();
        messages
    }

    #[test]
    fn the_process_is_read_however_its_message_arrives() {
        let bytes = [message(b'K', &[0, 0, 1, 2, 9, 9, 9, 9]), message(b'Z', b"I")].concat();
        for size in 1..bytes.len() {
            let mut messages = Messages::new();
            let process = messages.announced_process();
            assert_eq!(process.get(), None);
            bytes.chunks(size).for_each(|part| messages.read_part(part).unwrap());
            assert_eq!(process.get(), Some(&258), "{size}");
        }
        let mut messages = Messages::new();
        messages.read_part(&message(b'K', &[0, 0])).unwrap();
        assert_eq!(messages.announced_process().get(), None, "too short");
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
        for part_size in [1000, 4096, answer.len()] {
            let mut messages = Messages::new();
            for part in answer.repeat(2).chunks(part_size) {
                messages.read_part(part).unwrap();
            }
            assert_eq!((messages.body_left, messages.header_filled), (0, 0));
        }
        let mut slowly = Messages::new();
        let answer = [message(b'R', &[0; 4]), message(b'Z', b"I"), message(b'A', b"xyz")].concat();
        answer.iter().for_each(|&byte| slowly.read_part(&[byte]).unwrap());
        assert_eq!((slowly.body_left, slowly.header_filled, slowly.was_ready), (0, 0, true));
    }

    #[test]
    fn a_too_large_header_is_refused() {
        for header in [
            &b"R\x7f\xff\xff\xff"[..],
            b"D\xff\xff\xff\xff",
            b"D\x04\x00\x00\x00",
            b"S\x00\x01\x00\x01",
            b"Z\x00\x00\x00\x03",
            b"HTTP/",
        ] {
            assert_eq!(Messages::new().read_part(header), Err(TooLong), "{header:?}");
        }
    }

    #[test]
    fn a_weak_login_is_refused() {
        let notice = message(b'N', b"SWARNING\0\0");
        for (login_request, login) in [
            (3_u32, LoginMethod::Cleartext),
            (5, LoginMethod::Md5),
            (10, LoginMethod::Scram),
            (0, LoginMethod::Scram),
        ] {
            let login_asked = message(b'R', &[&login_request.to_be_bytes()[..], b"salt"].concat());
            let bytes = [&notice[..], &login_asked, &message(b'R', &[0; 4])].concat();
            for weakest in [LoginMethod::Scram, LoginMethod::Md5, LoginMethod::Cleartext] {
                for part_size in [1, 3, bytes.len()] {
                    let mut messages = Messages::new().refuse_weaker_than(weakest);
                    let followed = bytes.chunks(part_size).try_for_each(|part| messages.read_part(part));
                    assert_eq!(
                        followed.is_err(),
                        login > weakest,
                        "{login_request} where {weakest:?} is the weakest"
                    );
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
            assert_eq!(passed(&mut was_ready(), &notification), 4 * LONGEST_REPLY / notification.len());
        }
    }

    /// A server may report a setting after each transaction that changed it, for as long as the connection lasts.
    #[test]
    fn the_number_of_settings_is_bounded() {
        let setting = message(b'S', &[b"search_path\0".as_slice(), &[b'x'; 60_000], b"\0"].concat());
        assert_eq!(passed(&mut was_ready(), &setting), 4 * LONGEST_REPLY / setting.len());
        let mut messages = was_ready();
        let reported = (0..).take_while(|number| {
            let setting = message(b'S', format!("setting{number}\0on\0").as_bytes());
            setting.chunks(3).try_for_each(|part| messages.read_part(part)).is_ok()
        });
        assert_eq!(reported.count(), MAX_SETTINGS);
    }
}
