//! Fuzz targets for the parsers of foreign bytes, used by the tests below and by `fuzz/`. A target panics when a parser
//! is wrong.

use std::time::Duration;

use leasehold_core::Frames;
use redis::{PushInfo, PushKind, Value, aio::AsyncPushSender};

use crate::{
    error::Refused,
    frames::ReplyFrames,
    memos::read_text,
    push_listener::{PushHandler, PushListener, PushSender},
    reach::{shard_wire, slots},
    reply::Reply,
};

/// Parses these bytes as the replies of a server.
pub fn replies(bytes: &[u8]) {
    let whole = ReplyFrames::new().read_part(bytes);
    for chunk_size in [1, 7] {
        let mut replies = ReplyFrames::new();
        let parts = bytes.chunks(chunk_size).try_for_each(|bytes| replies.read_part(bytes));
        assert_eq!(parts, whole, "the bound depends on how the bytes were cut");
    }
    slots(bytes);
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    assert!(is_allowed(bytes), "a reply that the client library reads is not refused");
    read_by_each(&value);
    match value {
        Value::Push { kind, data } => handle_push(kind, data),
        Value::Array(data) => handle_push(PushKind::Message, data),
        _ => {}
    }
}

/// Parses the slots and redirections that nodes of a Redis Cluster report, and the pushes on their separate connection.
fn slots(bytes: &[u8]) {
    if let Ok(Some((_, length))) = shard_wire::read_frame(bytes) {
        assert!(length <= bytes.len());
        for end in 0..length {
            assert!(
                matches!(shard_wire::read_frame(&bytes[..end]), Ok(None)),
                "a frame ended before its end"
            );
        }
    }
    if let Ok(value) = redis::parse_redis_value(bytes) {
        let _ = slots::read_slots(value, "host");
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = slots::redirection_endpoint(&text, "host");
    let _ = Refused::parse(&text);
}

/// Whether the bound on replies accepts the first reply, or refuses it only because of a long number. The client
/// library accepts numbers of any length, with blanks and zeros before them; no server writes such numbers.
fn is_allowed(bytes: &[u8]) -> bool {
    let mut replies = ReplyFrames::new();
    for byte in bytes {
        if replies.read_part(&[*byte]).is_err() {
            return replies.has_too_long_number();
        }
        if replies.is_between_replies() {
            break;
        }
    }
    true
}

/// Parses these bytes as a message on the channel of a client.
pub fn message(bytes: &[u8]) {
    PushListener::new("lock:", std::sync::Arc::default()).receive(bytes);
}

/// Parses these bytes as the stored text of a memo.
pub fn memo(bytes: &[u8]) {
    let _ = read_text(bytes, Duration::ZERO, false);
}

/// Reads the value by each reader of script answers.
fn read_by_each(value: &Value) {
    let readers: [fn(&mut Reply); 7] = [
        |reply| drop(reply.bytes()),
        |reply| drop(reply.number()),
        |reply| drop(reply.count::<u32>()),
        |reply| drop(reply.millis()),
        |reply| drop(reply.text()),
        |reply| drop(reply.texts()),
        |reply| drop(reply.list()),
    ];
    for (i, reader) in readers.iter().enumerate() {
        let Ok(mut reply) = Reply::of(value.clone()) else { return };
        reader(&mut reply);
        readers[(i + 1) % readers.len()](&mut reply);
        drop(reply.all_text());
    }
}

/// Passes a push to a new listener.
fn handle_push(kind: PushKind, data: Vec<Value>) {
    let listener = PushListener::new("lock:", std::sync::Arc::default());
    let _ = PushSender(listener).send(PushInfo { kind, data });
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::fuzz;

    use super::*;

    const GRANTED: &str = "granted 000102030405060708090a0b0c0d0e0f 17 3 2000 5000000 l lock:a b";

    #[test]
    fn replies_are_read_from_random_bytes() {
        let push = format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{GRANTED}\r\n", GRANTED.len());
        let samples = [
            "*3\r\n:1\r\n*2\r\n$1\r\na\r\n$2\r\n17\r\n+x\r\n",
            "%1\r\n+a\r\n*1\r\n:2\r\n",
            "|1\r\n+a\r\n:2\r\n~2\r\n:1\r\n,1.5\r\n",
            "-NOSCRIPT no\r\n",
            "=7\r\ntxt:abc\r\n",
            "(12345678901234567890\r\n",
            "#t\r\n_\r\n$-1\r\n*-1\r\n",
            ">2\r\n+invalidate\r\n*1\r\n$6\r\nlock:a\r\n",
            // Found by cargo-fuzz.
            "*\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t1\r\n+\n\r\n",
            &push,
        ];
        fuzz::run(&samples.map(|sample| sample.as_bytes().to_vec()), replies);
    }

    #[test]
    fn messages_are_read_from_random_bytes() {
        let id = "000102030405060708090a0b0c0d0e0f";
        let samples = [
            GRANTED.to_owned(),
            format!("broken {id} lock:a"),
            format!("ring {id} lock:ä"),
            "memo lock:a".to_owned(),
        ];
        fuzz::run(&samples.map(String::into_bytes), message);
    }

    #[test]
    fn memos_are_read_from_random_bytes() {
        let (id, print) = ("000102030405060708090a0b0c0d0e0f", "ab".repeat(32));
        let samples =
            [format!("1 once {id} 00000000000000000001 7 - x y"), format!("1 once {id} 1 7 {print} ")];
        fuzz::run(&samples.map(String::into_bytes), memo);
    }
}
