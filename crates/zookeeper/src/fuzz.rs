//! The parsers of foreign bytes, for the tests below and for `fuzz/`. A target panics when a parser is wrong.

use leasehold_core::{ClaimId, Mode};

use crate::{
    claims::OwnNodes,
    keys::{self, Node},
    latch,
    memo_record::MemoRecord,
    position::{holder_count, position},
    record::{Record, is_broken, read_limit},
    wire::{
        Create, Created, Event, Exists, GetAcl, GetChildren, GetData, Header, Multi, Op, Reader, Stat,
        Welcome,
    },
};

/// Reads a message of the server. The first byte selects its kind.
pub fn answer(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let reader = &mut Reader::new(bytes);
    match kind % 9 {
        0 => drop(Welcome::read(bytes)),
        1 => drop(Header::read(reader).and_then(|_| Event::read(reader))),
        2 => drop(Create::read(reader)),
        3 => check_positions(&GetChildren::read(reader).unwrap_or_default()),
        4 => {
            if let Some((data, _)) = GetData::read(reader) {
                check_data(&data);
            }
        }
        5 => drop(Exists::read(reader)),
        6 => drop(Multi::read(reader)),
        7 => drop(GetAcl::read(reader)),
        _ => drop(Stat::read(reader)),
    }
}

/// Reads the name of a node, a line end, and the data of the node.
pub fn node(bytes: &[u8]) {
    let (name, data) = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or((bytes, &[][..]), |line_end| (&bytes[..line_end], &bytes[line_end + 1..]));
    check_data(data);
    let Ok(name) = std::str::from_utf8(name) else { return };
    if let Some(record) = latch::read_record(name, data).filter(|_| keys::is_latch(name)) {
        assert!(record.owner.as_bytes() == data && !latch::is_broken(name, data), "{record:?}");
    }
    if let Some(node) = Node::read(name) {
        assert!(name.ends_with(|last: char| last.is_ascii_digit()), "{node:?}");
        assert!(name.contains(&node.number.unsigned_abs().to_string()), "{node:?}");
    }
    let _ = keys::belongs_to(name, ClaimId([0xab; 16]));
    if let Some(known) = keys::name_of(name) {
        let dir = keys::Dir::of("", "/locks", &known);
        assert_eq!(dir.without_chroot().strip_prefix("/locks/"), Some(name));
    }
    let requested = "/locks/a/_c_x-lock-";
    let created_node =
        OwnNodes::created(requested, Created { path: format!("/locks/a/{name}"), stat: Stat::default() });
    if let Some(created_node) = created_node {
        assert_eq!(created_node.name(), name);
    }
}

/// Reads the data of a node.
fn check_data(data: &[u8]) {
    let (_, _) = (is_broken(data), read_limit(data));
    if let Some(memo) = MemoRecord::read(data) {
        assert!(memo.data() == data, "what is read can be written");
    }
    if let Some(record) = Record::read(data) {
        assert_eq!(Record::read(&record.text()), Some(record), "what is read can be written");
    }
}

/// Reads the position of some children in the queue of all of them.
fn check_positions(children: &[String]) {
    let nodes = keys::queue_nodes(children);
    let _ = holder_count(&nodes);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }] {
        for own in children.iter().take(3) {
            drop(position(&nodes, own, mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_testkit::fuzz;

    use super::*;
    use crate::wire::Writer;

    const NODES: [&str; 6] = [
        "_c_abababab-abab-abab-abab-abababababab-leasehold-26250-latch-0000000008",
        "_c_abababab-abab-abab-abab-abababababab-lock-0000000007",
        "_c_abababab-abab-abab-abab-abababababab-__READ__-2147483647",
        "0011aa__rlock__0000000004",
        "lock--000000001",
        "leases",
    ];

    fn message(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::new();
        write(&mut writer);
        writer.finish().split_off(4)
    }

    fn record() -> Vec<u8> {
        Record { broken: false, hold_time: Duration::from_secs(30), id: None, owner: "me@here:7".to_owned() }
            .text()
    }

    fn record_with_id() -> Vec<u8> {
        let id = Some(ClaimId([0xab; 16]));
        Record { broken: false, hold_time: Duration::from_secs(30), id, owner: "me@here:7".to_owned() }.text()
    }

    #[test]
    fn messages_are_read_from_random_bytes() {
        let stat = [0x01; 68];
        let children = message(|writer| {
            writer.count(NODES.len());
            for node in NODES {
                writer.text(node);
            }
        });
        // One message for each kind of `answer`, in the same order.
        let messages = [
            message(|writer| {
                writer.int(0).int(30_000).long(7).bytes(&[7; 16]).bool(false);
            }),
            message(|writer| {
                writer.int(-1).long(-1).int(0).int(3).int(3).text("/locks/a");
            }),
            [message(|writer| _ = writer.text(NODES[0])), stat.to_vec()].concat(),
            children,
            [message(|writer| _ = writer.bytes(&record())), stat.to_vec()].concat(),
            stat.to_vec(),
            message(|writer| {
                writer.int(1).bool(false).int(-1).text("/locks/a").int(2).bool(false).int(-1);
                writer.int(-1).bool(false).int(-1).int(-101).int(-1).bool(true).int(-1);
            }),
            [message(|writer| _ = writer.count(1).int(31).text("digest").text("theirs:x")), stat.to_vec()]
                .concat(),
        ];
        let samples: Vec<_> =
            (0_u8..).zip(messages).map(|(kind, message)| [vec![kind], message].concat()).collect();
        fuzz::run(&samples, answer);
    }

    #[test]
    fn nodes_and_records_are_read_from_random_bytes() {
        let names = NODES.iter().chain(&["a%2Fb", "läuft ✓", "_c_x-lock-0000000001", "lock-0000000002"]);
        let texts = [record(), record_with_id()];
        let samples: Vec<_> = names
            .flat_map(|name| texts.iter().map(move |text| [name.as_bytes(), b"\n", text].concat()))
            .collect();
        fuzz::run(&samples, node);
    }
}
