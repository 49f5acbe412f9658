//! Servers that send messages that no ZooKeeper sends.

use std::{io, sync::Arc};

use leasehold_core::{Answer, Engine, EngineError, Env, Fault, How};
use leasehold_testkit::server::{FakeConnection, FakeServer};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::rig::{exclusive, local};

/// Answers to a request by its code: an error and the body.
type Answers = dyn Fn(i32) -> (i32, Vec<u8>) + Send + Sync;

/// The codes of requests.
const EXISTS: i32 = 3;
const CREATE: i32 = 15;
const CHILDREN: i32 = 8;
/// The state of a node: all zeros.
const STAT: [u8; 68] = [0; 68];

/// A text as ZooKeeper encodes it.
fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}

/// A message, which begins with its length.
fn message(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

/// The next message of the client.
fn next_message(connection: &mut FakeConnection) -> io::Result<Vec<u8>> {
    let length = connection.receive_exactly(4)?;
    let length = u32::from_be_bytes(length.try_into().unwrap());
    connection.receive_exactly(length as usize)
}

/// The number that begins at this byte.
fn int(bytes: &[u8], start: usize) -> i32 {
    i32::from_be_bytes(bytes[start..start + 4].try_into().unwrap())
}

/// Gives every client a session with this timeout, and sends these answers.
fn serve(connection: &mut FakeConnection, millis: i32, answers: &Answers) -> io::Result<()> {
    next_message(connection)?;
    let session = 7_i64.to_be_bytes();
    connection.send(&message(&[
        &[0; 4],
        &millis.to_be_bytes(),
        &session,
        &text("sixteen letters."),
        &[0],
    ]))?;
    loop {
        let request = next_message(connection)?;
        let (xid, code) = (int(&request, 0), int(&request, 4));
        let (error, body) = answers(code);
        let zxid = 9_i64.to_be_bytes();
        connection.send(&message(&[&xid.to_be_bytes(), &zxid, &error.to_be_bytes(), &body]))?;
    }
}

/// The answers of a server with an empty queue.
fn regular_answer(code: i32) -> (i32, Vec<u8>) {
    match code {
        EXISTS => (0, STAT.to_vec()),
        CHILDREN => (0, vec![0; 4]),
        _ => (0, Vec::new()),
    }
}

/// The result of a claim on such a server.
fn claim_on(
    millis: i32,
    answers: impl Fn(i32) -> (i32, Vec<u8>) + Send + Sync + 'static,
) -> Result<Answer, EngineError> {
    let fake_server = FakeServer::start(move |connection| serve(connection, millis, &answers));
    let config = Config::new(vec![local(fake_server.port())]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = Arc::new(ZookeeperEngine::new(config, &Env::system()));
    runtime.block_on(engine.claim(&exclusive("a"), How::Create))
}

/// R24: the name of a node is cut out of its path by length, so the path is checked first.
#[test]
fn a_node_at_an_unexpected_path_is_refused() {
    for path in ["", "/", "/locks", "/locks/a/", "/locks/b/_c_x-lock-0000000001", "\u{1f512}"] {
        let answer = claim_on(30_000, move |code| match code {
            CREATE => (0, [text(path), STAT.to_vec()].concat()),
            code => regular_answer(code),
        });
        let error = answer.unwrap_err();
        assert_eq!(error.fault, Fault::Unknown, "{path:?}: {error:?}");
        assert!(error.to_string().contains("unexpected"), "{path:?}: {error}");
    }
}

/// R12, R24: a newer server may use error codes that we do not know.
#[test]
fn an_unknown_error_code_leaves_the_claim_unknown() {
    for code in [-999, 1, -1, i32::MIN] {
        let answer = claim_on(30_000, move |request_code| match request_code {
            CREATE => (code, Vec::new()),
            request_code => regular_answer(request_code),
        });
        let error = answer.unwrap_err();
        assert_eq!(error.fault, Fault::Unknown, "{code}: {error:?}");
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
}

#[test]
fn a_malformed_list_or_a_truncated_answer_is_an_error() {
    for faked_code in [EXISTS, CREATE] {
        let one_child = [vec![0, 0, 0, 1], vec![0x7f; 4]].concat();
        for body in [vec![0x7f, 0xff, 0xff, 0xff], vec![0; 3], one_child, vec![0xff; 64]] {
            let sent_body = body.clone();
            let answer = claim_on(30_000, move |code| match code {
                code if code == faked_code => (0, body.clone()),
                code => regular_answer(code),
            });
            let error = answer.unwrap_err();
            assert_eq!(error.fault, Fault::Unknown, "{faked_code}, {sent_body:?}: {error:?}");
        }
    }
}

/// With such a timeout heartbeats would follow each other without a pause.
#[test]
fn a_session_with_a_tiny_timeout_is_refused() {
    for millis in [0, -1, 19, i32::MIN] {
        let error = claim_on(millis, |_| (0, Vec::new())).unwrap_err();
        assert_eq!(error.fault, Fault::Misconfigured, "{millis}: {error:?}");
    }
}
