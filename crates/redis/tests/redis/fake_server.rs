//! Servers that send invalid replies: the client bounds the memory for a reply, and connects again.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, LONGEST_REPLY, Locks};
use leasehold_redis::{Address, Config, RedisEngine};
use leasehold_testkit::server::{FakeAnswers, FakeServer, MariadbServer};

use crate::rig::{Rig, local};

/// The size of the kernel's buffers of a connection, with a margin.
const KERNEL: usize = 32 << 20;

#[test]
fn a_reply_is_bounded_and_the_client_reconnects() {
    let rig = Rig::new();
    let part = format!("$1000\r\n{}\r\n", "x".repeat(1000));
    for (start, continuation, max_bytes) in [
        ("$2147483647\r\n", "x", 0),
        ("*2147483647\r\n", part.as_str(), 0),
        ("%9223372036854775807\r\n", part.as_str(), 0),
        ("+", "x", LONGEST_REPLY),
        ("*60000\r\n", part.as_str(), LONGEST_REPLY),
    ] {
        let endless = continuation.repeat(1 + 64 * 1024 / continuation.len());
        let answers = FakeAnswers { answers: vec![start.into()], endless: endless.into() };
        let fake_server = FakeServer::answering(answers);
        let config = Config::new(Address::Tcp(local(fake_server.port())));
        let locks = Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build();
        let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(100)).unwrap_err();
        assert!(!error.is_taken(), "{start:?}: {error}");
        rig.until("the client hangs up", || fake_server.ended() > 0);
        assert!(fake_server.taken() <= max_bytes + KERNEL, "{start:?}: {} bytes", fake_server.taken());
        let before = fake_server.connections();
        rig.until("the client connects again", || {
            assert!(locks.mutex("a").blocking().try_acquire().is_err());
            fake_server.connections() > before
        });
    }
}

/// Another kind of service listens at the port of the URL.
#[test]
fn a_server_that_is_not_redis_is_a_misconfiguration() {
    let mariadb = MariadbServer::start(&[]);
    let is_refused = |port, service: &str| {
        let config = Config::new(Address::Tcp(local(port)));
        let locks = Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build();
        let error = locks.mutex("a").blocking().acquire().unwrap_err();
        let message = error.to_string();
        assert!(
            error.is_misconfigured() && message.contains("not of a Redis server"),
            "{service}: {message}"
        );
        assert!(
            message.contains(&port.to_string()) && !message.contains("Unexpected"),
            "{service}: {message}"
        );
    };
    is_refused(mariadb.port(), "MariaDB");
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "220 mail ESMTP\r\n"] {
        let fake_server =
            FakeServer::answering(FakeAnswers { answers: vec![answer.into()], endless: Vec::new() });
        is_refused(fake_server.port(), answer);
    }
}
