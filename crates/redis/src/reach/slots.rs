//! Reads the owners of the slots, as a node of a Redis Cluster reports them
//! (<https://redis.io/docs/latest/commands/cluster-slots/>).

use leasehold_core::{Endpoint, EngineError};
use redis::Value;

use crate::{keys::SLOTS, reply::unreadable};

/// Consecutive slots, and the master that has them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) owner: NodeInfo,
}

/// A report about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    /// The id in the cluster; `None` before Redis 4.
    pub(crate) id: Option<String>,
    /// The address that the node announces; `None` if the reporting node does not know it.
    pub(crate) endpoint: Option<Endpoint>,
}

/// Reads the answer to `CLUSTER SLOTS` of the node at `reporter_host`. An unreadable part makes the whole answer an
/// error.
pub(crate) fn read_slots(reply: Value, reporter_host: &str) -> Result<Vec<SlotRange>, EngineError> {
    let Value::Array(ranges) = reply else { return Err(unreadable()) };
    ranges.into_iter().map(|range| read_range(range, reporter_host).ok_or_else(unreadable)).collect()
}

/// Reads the host and port of a redirection. An empty host stands for `reporter_host`, the host of the redirecting
/// node. Returns `None` for an unknown host.
pub(crate) fn redirection_endpoint(text: &str, reporter_host: &str) -> Option<Endpoint> {
    // An IPv6 address is written without brackets.
    let (host_text, port) = text.rsplit_once(':')?;
    endpoint_of(host_text, port.parse().ok()?, reporter_host)
}

/// Reads one entry: the first and last slot, then the owner, then its replicas; `None` if it is malformed.
fn read_range(range: Value, reporter_host: &str) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let [first, last, Value::Array(master), ..] = parts.as_slice() else { return None };
    let (first, last) = (slot(first)?, slot(last)?);
    let [host_text, Value::Int(port), rest @ ..] = master.as_slice() else { return None };
    let host_text = match host_text {
        Value::Nil => "",
        host_text => text_of(host_text)?,
    };
    let id = rest.first().and_then(text_of).filter(|id| !id.is_empty()).map(str::to_owned);
    let owner = NodeInfo { id, endpoint: endpoint_of(host_text, u16::try_from(*port).ok()?, reporter_host) };
    (first <= last).then_some(SlotRange { first, last, owner })
}

/// The endpoint of a reported host; `reporter_host` is the host of the reporting node. `None` if that node does not
/// know the host (`?`).
fn endpoint_of(host_text: &str, port: u16, reporter_host: &str) -> Option<Endpoint> {
    match host_text {
        "?" => None,
        "" => Some(Endpoint { host: reporter_host.to_owned(), port }),
        host_text => Some(Endpoint { host: host_text.trim_matches(['[', ']']).to_owned(), port }),
    }
}

/// The number of a slot; `None` if the value is not the number of a slot.
fn slot(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok().filter(|&slot| usize::from(slot) < SLOTS)
}

/// The text of a value; `None` if it is no text.
fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, as the server sends it.
    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// The entry of an owner with these slots, this host and this port, and of a replica.
    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host, id| Value::Array(vec![host, Value::Int(port), bulk(id), Value::Array(vec![])]);
        let parts = vec![Value::Int(first), Value::Int(last), node(host, "a1"), node(bulk("replica"), "b2")];
        Value::Array(parts)
    }

    fn endpoint_at(host: &str, port: u16) -> Option<Endpoint> {
        Some(Endpoint { host: host.to_owned(), port })
    }

    #[test]
    fn an_endpoint_without_a_host_uses_the_host_of_the_asked_node() {
        let read =
            |host: Value| read_slots(Value::Array(vec![range(0, 5, host, 7)]), "asked").unwrap().remove(0);
        for (host, endpoint) in [
            (bulk("10.0.0.1"), endpoint_at("10.0.0.1", 7)),
            (bulk("fe80::1"), endpoint_at("fe80::1", 7)),
            (Value::Nil, endpoint_at("asked", 7)),
            (bulk(""), endpoint_at("asked", 7)),
            (bulk("?"), None),
        ] {
            let owner = NodeInfo { id: Some("a1".to_owned()), endpoint };
            assert_eq!(read(host), SlotRange { first: 0, last: 5, owner });
        }
        for (text, expected) in [
            ("10.0.0.1:6380", endpoint_at("10.0.0.1", 6380)),
            (":6380", endpoint_at("asked", 6380)),
            ("?:6380", None),
            ("redis.example:1", endpoint_at("redis.example", 1)),
            ("fe80::1:6380", endpoint_at("fe80::1", 6380)),
            ("[fe80::1]:6380", endpoint_at("fe80::1", 6380)),
            ("10.0.0.1", None),
            ("10.0.0.1:99999", None),
        ] {
            assert_eq!(redirection_endpoint(text, "asked"), expected, "{text}");
        }
    }

    #[test]
    fn a_partly_unreadable_answer_is_refused() {
        let good = || range(0, 5, bulk("a"), 1);
        assert_eq!(read_slots(Value::Array(vec![good(), good()]), "h").unwrap().len(), 2);
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            range(0, 16_384, bulk("a"), 1),
            range(-1, 5, bulk("a"), 1),
            range(6, 5, bulk("a"), 1),
            range(0, 5, bulk("a"), 99_999),
            range(0, 5, Value::Int(1), 1),
        ] {
            assert!(read_slots(Value::Array(vec![good(), bad]), "h").is_err());
        }
    }
}
