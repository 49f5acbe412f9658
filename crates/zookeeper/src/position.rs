//! The position of a claim in its queue: which nodes have to be deleted before the claim holds.

use leasehold_core::{KnownMode, Mode};

use crate::keys::Node;

/// What is ahead of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    /// The newest node that the claim has to wait for, and whether it is the only one. `None`: there is none.
    pub(crate) blocker: Option<(String, bool)>,
    /// The number of nodes ahead, without those that hold.
    pub(crate) ahead: u32,
    /// The number of the node is so large that later nodes possibly get no larger number.
    pub(crate) counter_used_up: bool,
}

/// No claim of a leasehold client waits with this number or a larger one. The server counts in 32 bits. After the
/// largest number it continues below zero, and servers from 3.6 on assign the largest number again and again
/// (<https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/server/DataTree.java>,
/// `createNode`). This number and the larger ones are left for claims that are created until the queue is empty and its
/// counter can start again.
pub(crate) const USED_UP_FROM: i32 = i32::MAX - (1 << 20);

/// Of the nodes ahead of a try (a claim that does not wait), the one that refuses the try: a holder or a waiter. `None`
/// if no node ahead refuses it. A try ahead counts as a holder only if it is the head of a lock's queue; this try has
/// to wait until the other tries ahead are decided.
pub(crate) fn refusing_node(ahead: &[Node], mode: Mode) -> Option<&Node> {
    let refuses_try = |index: usize, node: &Node| match mode.known() {
        KnownMode::Exclusive => true,
        KnownMode::Shared => !node.shared && (index == 0 || !node.is_try),
        KnownMode::Permits { .. } => !node.is_try,
    };
    ahead.iter().enumerate().find(|(index, node)| refuses_try(*index, node)).map(|(_, node)| node)
}

/// How many nodes of a queue hold.
pub(crate) fn holder_count(nodes: &[Node]) -> usize {
    match nodes.first() {
        None => 0,
        Some(first) if !first.shared => 1,
        Some(_) => nodes.iter().take_while(|node| node.shared).count(),
    }
}

/// The position of the node with this name; `None` if the node is not in the queue.
pub(crate) fn position(nodes: &[Node], own_name: &str, mode: Mode) -> Option<QueuePosition> {
    let own_index = nodes.iter().position(|node| node.name == own_name)?;
    let mut blockers = nodes[..own_index].iter().rev().filter(|node| mode != Mode::Shared || !node.shared);
    let blocker = blockers.next().map(|newest| (newest.name.clone(), blockers.next().is_none()));
    // No node in the queue of a semaphore holds.
    let holders_ahead = if mode.limit().is_some() { 0 } else { holder_count(nodes).min(own_index) };
    let ahead = u32::try_from(own_index - holders_ahead).unwrap_or(u32::MAX);
    let counter_used_up = !(0..USED_UP_FROM).contains(&nodes[own_index].number);
    Some(QueuePosition { blocker, ahead, counter_used_up })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::queue_nodes;

    const PERMITS: Mode = Mode::Permits { count: 1, limit: 2 };

    /// A queue with one node for each letter: a reader, a try, or a writer.
    fn nodes(letters: &str) -> Vec<Node> {
        let name = |(number, letter)| match letter {
            'r' => format!("x-__READ__{number:010}"),
            't' => format!("_c_00000000-0000-0000-0000-000000000000-try-lock-{number:010}"),
            _ => format!("x-lock-{number:010}"),
        };
        queue_nodes(&letters.chars().enumerate().map(name).collect::<Vec<_>>())
    }

    /// The index of the node that blocks the node at `own_index`, whether it is the only one, and the number of waiters
    /// ahead.
    fn blocker_and_ahead(letters: &str, own_index: usize, mode: Mode) -> (Option<(usize, bool)>, u32) {
        let nodes = nodes(letters);
        let position = position(&nodes, &nodes[own_index].name, mode).unwrap();
        let blocker = position
            .blocker
            .map(|(name, sole)| (nodes.iter().position(|node| node.name == name).unwrap(), sole));
        (blocker, position.ahead)
    }

    #[test]
    fn a_try_is_refused_by_holders_and_waiters_only() {
        for (letters, mode, expected) in [
            ("", Mode::Exclusive, None),
            ("t", Mode::Exclusive, Some(0)),
            ("rt", Mode::Exclusive, Some(0)),
            ("t", Mode::Shared, Some(0)),
            ("rr", Mode::Shared, None),
            ("rt", Mode::Shared, None),
            ("rtw", Mode::Shared, Some(2)),
            ("tt", PERMITS, None),
            ("tw", PERMITS, Some(1)),
        ] {
            let nodes = nodes(letters);
            let refusing = refusing_node(&nodes, mode).map(|node| node.number);
            assert_eq!(refusing, expected, "behind {letters:?}");
        }
    }

    #[test]
    fn a_writer_waits_for_the_node_ahead_and_a_reader_for_the_last_writer() {
        for (letters, own_index, mode, expected) in [
            ("w", 0, Mode::Exclusive, (None, 0)),
            ("ww", 1, Mode::Exclusive, (Some((0, true)), 0)),
            ("www", 2, Mode::Exclusive, (Some((1, false)), 1)),
            ("rrw", 2, Mode::Exclusive, (Some((1, false)), 0)),
            ("rrr", 2, Mode::Shared, (None, 0)),
            ("wrr", 2, Mode::Shared, (Some((0, true)), 1)),
            ("rwrr", 3, Mode::Shared, (Some((1, true)), 2)),
            ("wwr", 2, Mode::Shared, (Some((1, false)), 1)),
            ("w", 0, PERMITS, (None, 0)),
            ("ww", 1, PERMITS, (Some((0, true)), 1)),
        ] {
            assert_eq!(blocker_and_ahead(letters, own_index, mode), expected, "{own_index} of {letters}");
        }
        assert_eq!(position(&nodes("ww"), "x", Mode::Exclusive), None);
        assert_eq!(
            ["", "w", "ww", "rrw", "rr"].map(|letters| holder_count(&nodes(letters))),
            [0, 1, 1, 2, 2]
        );
    }
}
