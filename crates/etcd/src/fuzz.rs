//! The parsers of foreign bytes, for the tests below and for `fuzz/`. A target panics when a parser is wrong.

use leasehold_core::{Instant, Mode, Name, TokenBlocks};
use tokio::sync::mpsc;

use crate::{
    keys::{self, Dir},
    position::QueuePosition,
    push_handler::PushHandler,
    record::Record,
    view::{LeaseTimes, key_views, view},
    watches::{WatchStart, WatchTarget, Watches},
    wire::{
        AuthenticateResponse, Event, GrantResponse, KeepAliveResponse, MembersResponse, RangeResponse,
        StatusResponse, TimeToLiveResponse, TxnResponse, WatchResponse, read,
    },
};

/// The prefix of keys.
const PREFIX: &str = "/locks";
/// The id of the cluster.
const CLUSTER: u64 = 7;
/// The create revision of the own key of a claim.
const OWN_REVISION: i64 = 7;
const MODES: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, limit: 3 }];

/// Reads a reply of the server. The first byte selects its kind.
pub fn answer(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 9 {
        0 => drop(read::<RangeResponse>(bytes).map(|range| check_range(&range))),
        1 => drop(read::<TxnResponse>(bytes).map(check_txn)),
        2 => drop(read::<WatchResponse>(bytes).map(check_watch_response)),
        3 => drop(read::<GrantResponse>(bytes)),
        4 => drop(read::<KeepAliveResponse>(bytes)),
        5 => drop(read::<TimeToLiveResponse>(bytes)),
        6 => drop(read::<AuthenticateResponse>(bytes)),
        7 => drop(read::<StatusResponse>(bytes)),
        _ => drop(read::<MembersResponse>(bytes)),
    }
}

/// Reads a key, a line feed, and a value.
pub fn key(bytes: &[u8]) {
    let (key, value) = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or((bytes, &[][..]), |line_feed| (&bytes[..line_feed], &bytes[line_feed + 1..]));
    if let Some((name, part_below)) = keys::name_of(PREFIX, key) {
        let dir = Dir::of(PREFIX, &name);
        assert_eq!(dir.part_below(key), Some(part_below), "a key is in the directory of its name");
        let _ = dir.mode(key);
    }
    if let Some(name) = keys::name_of_bare_key(PREFIX, key) {
        assert_eq!(Dir::of(PREFIX, &name).bare_key(), key);
    }
    if let Some(name) = keys::name_of_queue_key(PREFIX, key) {
        assert!(
            Dir::of_queue(PREFIX, &name).part_below(key).is_some(),
            "a queue key is in the queue of its name"
        );
    }
    if let Some(record) = Record::read(value) {
        assert_eq!(Record::read(&record.text()), Some(record), "what is read can be written");
    }
}

fn dir() -> Dir {
    Dir::of(PREFIX, &Name::new("a").expect("it is a name"))
}

/// Reads the position of a claim, and the view of a name, from these keys.
fn check_range(range: &RangeResponse) {
    let dir = dir();
    for mode in MODES {
        for own in [None, Some(OWN_REVISION)] {
            let foreign = range.kvs.first().cloned();
            drop(QueuePosition::read(&dir, mode, range, own).with_foreign(foreign));
        }
    }
    let key_views = key_views(&dir, &range.kvs);
    let token_blocks = TokenBlocks::new(true);
    let tokens = (token_blocks, token_blocks.lineage(CLUSTER));
    drop(view(Name::new("a").expect("it is a name"), &dir, &key_views, &LeaseTimes::new(), tokens));
}

/// Reads the result of each step of a transaction.
fn check_txn(mut reply: TxnResponse) {
    let _ = reply.revision();
    for step in 0..3 {
        if let Some(range) = reply.range(step) {
            check_range(&range);
        }
        drop(reply.deleted(step));
    }
}

/// Passes a message about a watch to the watches of a connection: to two known watches, and to a watch with the id that
/// the message names.
fn check_watch_response(response: WatchResponse) {
    let (requests, _requests_sent) = mpsc::unbounded_channel();
    let watches = Watches::new(requests);
    for (lease, begin) in
        [(1, WatchStart::Now { read_revision: 5 }), (2, WatchStart::After(response.watch_id))]
    {
        let _ = watches.watch(
            WatchTarget::Epoch(lease),
            (b"k".to_vec(), Vec::new()),
            begin,
            Instant::from_nanos(0),
        );
    }
    for watch_id in [1, 2] {
        watches.receive(WatchResponse { watch_id, ..response.clone() }, &NullHandler);
    }
    watches.receive(response, &NullHandler);
}

/// Ignores all notifications.
struct NullHandler;

impl PushHandler for NullHandler {
    fn on_event(&self, _: WatchTarget, event: &Event) {
        let _ = event.is_deletion();
    }

    fn on_missed(&self, _: WatchTarget) {}

    fn on_watch_refused(&self) {}

    fn on_watch_ended(&self, _: WatchTarget) {}

    fn on_kept_alive(&self, _: i64, _: Instant, _: u64) {}

    fn on_reconnected(&self) {}

    fn needs_server(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::ClaimId;
    use leasehold_testkit::fuzz;
    use prost::Message;

    use super::*;
    use crate::{
        record::RecordState,
        wire::{Header, KeyValue, Response, ResponseOp},
    };

    fn record() -> Vec<u8> {
        let hold_time = Duration::from_secs(30);
        Record {
            state: RecordState::Claim,
            id: ClaimId([0xab; 16]),
            hold_time,
            owner: "me@here:7".to_owned(),
        }
        .text()
    }

    #[test]
    fn answers_are_read_from_random_bytes() {
        let header = Some(Header { cluster_id: CLUSTER, member_id: 1, revision: 9 });
        let kv = |key: &str| KeyValue {
            key: key.as_bytes().to_vec(),
            create_revision: 7,
            mod_revision: 8,
            value: record(),
            lease: 5,
        };
        let kvs =
            ["/locks/a", "/locks/a/7", "/locks/a/~p00000003.00000002.7", "/locks/a/~s7"].map(kv).to_vec();
        let range = RangeResponse { header: header.clone(), kvs, more: true, count: 4 };
        let step_result = ResponseOp { response: Some(Response::Range(range.clone())) };
        let txn = TxnResponse { header: header.clone(), succeeded: true, responses: vec![step_result; 3] };
        let event = Event { kind: 1, kv: Some(kv("/locks/a/7")) };
        let response = WatchResponse {
            header,
            watch_id: 2,
            created: true,
            events: vec![event; 2],
            ..WatchResponse::default()
        };
        let kinds = [(0, range.encode_to_vec()), (1, txn.encode_to_vec()), (2, response.encode_to_vec())];
        let others = (3..9).map(|kind| (kind, b"\x10\x07\x18\x09\x42\x03abc".to_vec()));
        let samples: Vec<_> =
            kinds.into_iter().chain(others).map(|(kind, bytes)| [vec![kind], bytes].concat()).collect();
        fuzz::run(&samples, answer);
    }

    #[test]
    fn keys_and_records_are_read_from_random_bytes() {
        let keys =
            ["/locks/a", "/locks/a%2Fb%25/7.1", "/locks/a/~p00000003.00000002.7", "/locks/ä/~s7", "/x"];
        let samples: Vec<_> = keys.iter().map(|key| [key.as_bytes(), b"\n", &record()].concat()).collect();
        fuzz::run(&samples, key);
    }
}
