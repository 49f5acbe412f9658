//! A directory may be larger than the default limit of a client for one reply.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::rig::Rig;

/// The length of each value: about the longest argument of a command line.
const VALUE_BYTES: usize = 100_000;
/// All values together exceed 4 MB.
const KEYS: usize = 45;

#[test]
fn large_values_of_other_programs_are_read_in_pages() {
    let rig = Rig::new();
    let value = "x".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        rig.server.command(&["put", &format!("/locks/a/{key}"), &value]);
    }
    let shown = rig.show("a");
    assert_eq!((shown.holders.len(), shown.waiters.len()), (1, KEYS - 1));
    let locks = rig.locks();
    assert_eq!(rig.run(locks.list("")).unwrap().len(), 1);
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    let permits = locks.semaphore("a", 2);
    assert!(permits.blocking().try_acquire().unwrap_err().is_misconfigured());
}

/// More bytes than the bound of a reply.
const HUGE_BYTES: usize = 65 << 20;

impl Rig {
    /// Writes a value that is too long for the command line of `etcdctl`, through the JSON gateway of the server:
    /// zeros, three for each `AAAA` of base64.
    fn put_zeros(&self, key_in_base64: &str, count: usize) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        let body = format!("{{\"key\":\"{key_in_base64}\",\"value\":\"{}\"}}", "AAAA".repeat(count / 3));
        let head = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut output = String::new();
        stream.read_to_string(&mut output).unwrap();
        assert!(output.starts_with("HTTP/1.1 200"), "{output}");
    }
}

#[test]
fn a_value_over_the_reply_bound_hides_no_other_key() {
    let rig = Rig::with(&["--max-request-bytes=100000000"]);
    let locks = rig.locks();
    // A busy machine takes long to send the value, and a connection on which nothing else arrives meanwhile counts as
    // dead.
    let hold = |name| locks.mutex(name).ttl(Duration::from_secs(3600)).blocking().acquire().unwrap();
    let _held = hold("zzz");
    // "/locks/big/1"
    rig.put_zeros("L2xvY2tzL2JpZy8x", HUGE_BYTES);
    let first = hold("aaa");
    rig.server.command(&["put", "/locks/big/2", "small"]);
    let views = (0..20).find_map(|_| rig.run(locks.list("")).ok()).expect("a list");
    let names: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.holders[0].foreign)).collect();
    assert_eq!(names, [("aaa", false), ("big", true), ("zzz", false)]);
    let shown = (0..20).find_map(|_| rig.run(locks.show("big")).ok()).expect("a look");
    // A key that certainly blocks the claim is reported as such, whatever its size.
    let answer_to = |request: &leasehold_core::Request| {
        let tries = (0..20).map(|_| request.blocking().try_acquire().unwrap_err());
        // A connection on which no other reply arrives while the long reply is sent counts as dead.
        tries.into_iter().find(|error| !error.is_unreachable() && !error.is_unknown()).expect("an answer")
    };
    let error = answer_to(&locks.mutex("big"));
    assert!(error.is_taken(), "{error}");
    let error = answer_to(&locks.rw("big").read());
    assert!(error.is_taken(), "{error}");
    let error = answer_to(&locks.semaphore("big", 2));
    assert!(error.is_misconfigured() && error.to_string().contains("mutex"), "{error}");
    assert_eq!((shown.holders[0].id.as_str(), shown.waiters[0].id.as_str()), ("1", "2"));
    // The name "big" has no memo, whoever holds it.
    let memo_of = |name: &str| {
        let tries = (0..20).map(|_| locks.read_memo_blocking(name));
        let is_answer = |error: &leasehold_core::Error| !error.is_unreachable() && !error.is_unknown();
        tries.into_iter().find(|memo| memo.as_ref().err().is_none_or(is_answer)).expect("an answer")
    };
    assert!(memo_of("big").unwrap().is_none());
    // "leasehold//locks/memo/aaa"
    rig.put_zeros("bGVhc2Vob2xkLy9sb2Nrcy9tZW1vL2FhYQ==", HUGE_BYTES);
    let error = memo_of("aaa").unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("no memo of leasehold"), "{error}");
    let new = leasehold_core::NewMemo::new(leasehold_core::MemoKind::ONCE, "x", Duration::from_secs(60));
    let error = first.release_with_memo_blocking(new.unwrap()).unwrap_err();
    // On a busy machine an earlier try may have had no answer, and then the outcome is unknown.
    let is_refused = error.is_misconfigured() || error.is_unknown();
    assert!(is_refused && error.to_string().contains("no memo of leasehold"), "{error}");
}
