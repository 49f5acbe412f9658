//! The view of the cluster that one node has (`CLUSTER NODES`).

/// What one node of a cluster knows about a node: one line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KnownNode {
    pub(super) id: String,
    /// The address that the node announces: `address:port@bus` and, in Redis 7.0 and later, `,name`.
    pub(super) announced: String,
    pub(super) flags: Vec<String>,
    /// The id of its master; `-` for a master.
    pub(super) master: String,
    /// The first and last slot of each range that it owns.
    slots: Vec<(u16, u16)>,
    /// Slots that are being moved to or from the node.
    pub(super) moving: Vec<MovingSlot>,
}

/// The role of a node: its id, its master and its slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Role {
    id: String,
    master: String,
    slots: Vec<(u16, u16)>,
}

/// A slot that is being moved, and the id of the node at the other end of the move.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MovingSlot {
    /// The slot moves to the node with this id.
    MigratingTo(u16, String),
    /// The slot comes from the node with this id.
    ImportingFrom(u16, String),
}

impl KnownNode {
    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// The part of this line that must be the same in the views of all nodes.
    pub(super) fn role(&self) -> Role {
        Role { id: self.id.clone(), master: self.master.clone(), slots: self.slots.clone() }
    }
}

/// Reads the answer to `CLUSTER NODES`. Skips lines that cannot be read.
pub(super) fn parse_nodes(lines: &[String]) -> Vec<KnownNode> {
    lines.iter().filter_map(|line| parse_node(line)).collect()
}

fn parse_node(line: &str) -> Option<KnownNode> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [id, announced, flags, master, _ping, _pong, _epoch, _link, slots @ ..] = words.as_slice() else {
        return None;
    };
    let (moving, owned): (Vec<_>, Vec<_>) = slots.iter().partition(|word| word.starts_with('['));
    Some(KnownNode {
        id: (*id).to_owned(),
        announced: (*announced).to_owned(),
        flags: flags.split(',').map(str::to_owned).collect(),
        master: (*master).to_owned(),
        slots: owned.into_iter().filter_map(parse_slot_range).collect(),
        moving: moving.into_iter().filter_map(parse_moving_slot).collect(),
    })
}

fn parse_slot_range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn parse_moving_slot(word: &str) -> Option<MovingSlot> {
    let inner = word.strip_prefix('[')?.strip_suffix(']')?;
    if let Some((slot, id)) = inner.split_once("->-") {
        return Some(MovingSlot::MigratingTo(slot.parse().ok()?, id.to_owned()));
    }
    let (slot, id) = inner.split_once("-<-")?;
    Some(MovingSlot::ImportingFrom(slot.parse().ok()?, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_lists_owned_and_moving_slots() {
        let line = "a1 127.0.0.1:12000@13000,name myself,master - 0 1 2 connected 0-5 7 [7->-b2] [9-<-c3]";
        let [node] = parse_nodes(&[line.to_owned(), "nonsense".to_owned()]).try_into().unwrap();
        let role = Role { id: "a1".to_owned(), master: "-".to_owned(), slots: vec![(0, 5), (7, 7)] };
        assert_eq!(node.role(), role);
        assert!(node.is("myself") && !node.is("fail") && node.owns(5) && !node.owns(6));
        assert_eq!(node.announced, "127.0.0.1:12000@13000,name");
        assert_eq!(
            node.moving,
            [MovingSlot::MigratingTo(7, "b2".to_owned()), MovingSlot::ImportingFrom(9, "c3".to_owned())]
        );
    }
}
