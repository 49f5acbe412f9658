//! The view of all nodes that a node of a Redis Cluster has (`CLUSTER NODES`).

/// What one node knows about another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) id: String,
    /// The address that the node announces: `address:port@bus` and, since 7.0, `,name`.
    pub(super) announced: String,
    pub(super) flags: Vec<String>,
    /// The id of its master; `-` for a master.
    pub(super) master: String,
    /// The first and last slot of each range that it owns.
    slots: Vec<(u16, u16)>,
    /// Slots that are being moved to or from it, with the id of the other node.
    pub(super) moving: Vec<Moving>,
}

/// The role of a node: its id, its master and its slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Role {
    id: String,
    master: String,
    slots: Vec<(u16, u16)>,
}

/// A slot that is being moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moving {
    /// To the node with this id.
    Out(u16, String),
    /// From the node with this id.
    In(u16, String),
}

impl Known {
    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// The part on which all nodes must agree.
    pub(super) fn role(&self) -> Role {
        Role { id: self.id.clone(), master: self.master.clone(), slots: self.slots.clone() }
    }
}

/// Reads the answer to `CLUSTER NODES`. Skips lines that cannot be read.
pub(super) fn read(lines: &[String]) -> Vec<Known> {
    lines.iter().filter_map(|line| known(line)).collect()
}

fn known(line: &str) -> Option<Known> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [id, announced, flags, master, _ping, _pong, _epoch, _link, slots @ ..] = words.as_slice() else {
        return None;
    };
    let (moving, owned): (Vec<_>, Vec<_>) = slots.iter().partition(|word| word.starts_with('['));
    Some(Known {
        id: (*id).to_owned(),
        announced: (*announced).to_owned(),
        flags: flags.split(',').map(str::to_owned).collect(),
        master: (*master).to_owned(),
        slots: owned.into_iter().filter_map(range).collect(),
        moving: moving.into_iter().filter_map(on_its_way).collect(),
    })
}

fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn on_its_way(word: &str) -> Option<Moving> {
    let inner = word.strip_prefix('[')?.strip_suffix(']')?;
    if let Some((slot, id)) = inner.split_once("->-") {
        return Some(Moving::Out(slot.parse().ok()?, id.to_owned()));
    }
    let (slot, id) = inner.split_once("-<-")?;
    Some(Moving::In(slot.parse().ok()?, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_lists_owned_and_moving_slots() {
        let line = "a1 127.0.0.1:12000@13000,name myself,master - 0 1 2 connected 0-5 7 [7->-b2] [9-<-c3]";
        let [known] = read(&[line.to_owned(), "nonsense".to_owned()]).try_into().unwrap();
        let role = Role { id: "a1".to_owned(), master: "-".to_owned(), slots: vec![(0, 5), (7, 7)] };
        assert_eq!(known.role(), role);
        assert!(known.is("myself") && !known.is("fail") && known.owns(5) && !known.owns(6));
        assert_eq!(known.announced, "127.0.0.1:12000@13000,name");
        assert_eq!(known.moving, [Moving::Out(7, "b2".to_owned()), Moving::In(9, "c3".to_owned())]);
    }
}
