//! Other programs may write data of any size into their nodes.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::rig::{Rig, acquire};

/// More bytes than an answer may have.
const HUGE_BYTES: usize = 65 << 20;

/// Bytes as ZooKeeper encodes them: with their length.
fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Creates a node with more data than the server's own command line can send. Does not end its session.
fn create_node(port: u16, path: &str, length: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut exchange = |request: &[u8]| {
        stream.write_all(&text(request)).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).unwrap();
        answer
    };
    // The last known change is 0, the timeout is 10 s, and the session is new.
    exchange(&[&[0; 12], &10_000_u32.to_be_bytes()[..], &[0; 8], &text(&[0; 16])].concat());
    let everybody = [&[0, 0, 0, 1, 0, 0, 0, 31][..], &text(b"world"), &text(b"anyone")].concat();
    let data = text(&vec![b'x'; length]);
    let create = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &text(path.as_bytes()), &data, &everybody, &[0; 4]].concat();
    let answer = exchange(&create);
    assert_eq!(answer[12..16], [0; 4], "the error of the answer");
}

#[test]
fn a_node_longer_than_any_answer_counts_as_a_claim() {
    let rig = Rig::with(&["-Djute.maxbuffer=100000000", "-Xmx800m"]);
    let locks = rig.locks();
    let (_first_name, _last_name) = (acquire(&locks, "aaa"), acquire(&locks, "zzz"));
    rig.server.command(&["create", "/locks/big"]);
    for (number, length) in [(0, HUGE_BYTES), (1, 1000)] {
        let path =
            format!("/locks/big/_c_00000000-0000-0000-0000-00000000000{number}-lock-000000000{number}");
        create_node(rig.server.port(), &path, length);
    }
    let views = rig.run(locks.list("")).unwrap();
    let names: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.holders[0].foreign)).collect();
    assert_eq!(names, [("aaa", false), ("big", true), ("zzz", false)]);
    let shown = rig.run(locks.show("big")).unwrap();
    assert_eq!(shown.waiters[0].owner, "x".repeat(128) + "…");
    assert!(locks.mutex("big").blocking().try_acquire().unwrap_err().is_taken());
}
