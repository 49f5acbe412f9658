//! Servers that send malformed messages: a reply takes bounded memory, and the client continues.

use std::time::Duration;

use leasehold_core::LONGEST_REPLY;
use leasehold_testkit::server::{FakeAnswers, FakeServer};

use crate::rig::{locks_of, until};

/// An upper bound of the bytes that the kernel buffers for a connection.
const KERNEL: usize = 32 << 20;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

#[test]
fn a_reply_is_bounded() {
    let welcome = message(b'R', &[0; 4]);
    let notice = message(b'N', &[b"SWARNING\0M".as_slice(), &[b'x'; 1000], b"\0\0"].concat());
    let cases: [(&str, Vec<u8>, &[u8], usize); 3] = [
        ("a header", b"R\x7f\xff\xff\xff".to_vec(), &[b'x'; 1000], 0),
        ("a header after the login", [&welcome[..], b"S\x7f\xff\xff\xff"].concat(), &[b'x'; 1000], 0),
        ("notices without end", welcome, &notice, LONGEST_REPLY),
    ];
    for (what, answer, endless, most) in cases {
        let answers = FakeAnswers { answers: vec![answer], endless: endless.repeat(64) };
        let fake_server = FakeServer::answering(answers);
        let locks = locks_of("postgres", fake_server.port());
        let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(100)).unwrap_err();
        assert!(!error.is_taken(), "{what}: {error}");
        until("the client closes the connection", || fake_server.ended() > 0);
        assert!(fake_server.taken() <= most + KERNEL, "{what}: {} bytes", fake_server.taken());
        let before = fake_server.connections();
        until("the client connects again", || {
            assert!(locks.mutex("a").blocking().try_acquire().is_err());
            fake_server.connections() > before
        });
    }
}
