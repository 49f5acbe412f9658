//! A directory as operators see it.

use leasehold_core::{ClaimId, HolderView, Lineage, Mode, Name, View, WaiterView};

use crate::{
    config::{Config, Layout},
    keys::{Dir, Node, id_of, is_plain},
    latch::{is_broken, read_record},
    position::holder_count,
    record::Record,
    wire::Stat,
};

/// A node of a queue, or a permit, with its data.
#[derive(Clone, Debug)]
pub(crate) struct StoredNode {
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// The contents of the directory of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirContents {
    /// The claims of a lock, in the order of the queue.
    pub(crate) lock_queue: Vec<(Node, StoredNode)>,
    /// The queue entries for permits, in order.
    pub(crate) permits_queue: Vec<StoredNode>,
    /// The permits that are held.
    pub(crate) permits: Vec<StoredNode>,
    /// The limit of permits, if it is known.
    pub(crate) limit: Option<u32>,
    /// The lineage of the tokens; `None` if the directory is empty.
    pub(crate) lineage: Option<Lineage>,
}

/// A hold and its nodes: one for each permit, otherwise one.
#[derive(Clone, Debug)]
pub(crate) struct HeldNodes<'a> {
    pub(crate) mode: Mode,
    pub(crate) nodes: Vec<&'a StoredNode>,
}

/// The mode of a claim of a lock.
const fn mode_of(node: &Node) -> Mode {
    if node.shared { Mode::Shared } else { Mode::Exclusive }
}

impl StoredNode {
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }

    pub(crate) fn record(&self) -> Option<Record> {
        read_record(self.name(), &self.data)
    }

    pub(crate) fn is_broken(&self) -> bool {
        is_broken(self.name(), &self.data)
    }

    /// The claim id, if the node is ours.
    pub(crate) fn claim(&self) -> Option<ClaimId> {
        self.record().and_then(|record| record.id.or_else(|| id_of(self.name())))
    }

    /// The claim id; for a foreign node its name.
    fn id(&self) -> String {
        self.claim().map_or_else(|| self.name().to_owned(), |id| id.to_string())
    }

    /// The owner, as its program wrote it: a leasehold client writes a record; other programs write an address, a text
    /// or nothing.
    fn owner(&self, layout: Layout) -> String {
        let is_known = |name: &str| {
            Node::read(name).is_none_or(|node| node.is_known) || (layout == Layout::Plain && is_plain(name))
        };
        let text = || std::str::from_utf8(&self.data).ok().filter(|text| !text.chars().any(char::is_control));
        match self.record() {
            Some(record) => record.owner,
            None if !is_known(self.name()) => "unknown kind".to_owned(),
            None => text().filter(|text| !text.is_empty()).unwrap_or("another program").to_owned(),
        }
    }

    fn holder(&self, config: &Config) -> HolderView {
        let record = self.record();
        let holder = HolderView::new(self.id(), self.owner(config.layout))
            .token(config.token_blocks.first(self.stat.czxid))
            .times(None, record.as_ref().map(|record| record.hold_time))
            .foreign(record.is_none())
            .broken(self.is_broken());
        if record.is_none() && self.stat.ephemeral_owner != 0 { holder.of_session() } else { holder }
    }

    fn waiter(&self, config: &Config) -> WaiterView {
        WaiterView::new(self.id(), self.owner(config.layout), None)
    }
}

impl DirContents {
    /// All holds: first those of the lock, then those of permits by their age.
    pub(crate) fn held(&self) -> Vec<HeldNodes<'_>> {
        let nodes: Vec<Node> = self.lock_queue.iter().map(|(node, _)| node.clone()).collect();
        let lock_holders = self.lock_queue[..holder_count(&nodes)].iter();
        let mut held: Vec<HeldNodes<'_>> = lock_holders
            .map(|(node, stored)| HeldNodes { mode: mode_of(node), nodes: vec![stored] })
            .collect();
        let mut nodes_by_claim: Vec<Vec<&StoredNode>> = Vec::new();
        for permit in &self.permits {
            let claim = permit.claim();
            // All permits of one claim were created in one step.
            let is_of_claim = |nodes: &&mut Vec<&StoredNode>| {
                claim.is_some() && nodes.first().is_some_and(|first| first.claim() == claim)
            };
            match nodes_by_claim.iter_mut().find(is_of_claim) {
                Some(nodes) => nodes.push(permit),
                None => nodes_by_claim.push(vec![permit]),
            }
        }
        nodes_by_claim.sort_by_key(|nodes| nodes.first().map(|node| node.stat.czxid));
        let held_permits = u32::try_from(self.permits.len()).unwrap_or(u32::MAX);
        let limit = self.limit.unwrap_or(held_permits);
        held.extend(nodes_by_claim.into_iter().map(|nodes| HeldNodes {
            mode: Mode::Permits { count: u32::try_from(nodes.len()).unwrap_or(u32::MAX), limit },
            nodes,
        }));
        held
    }

    /// The name as operators see it.
    pub(crate) fn view(&self, name: Name, dir: &Dir, config: &Config) -> View {
        let mut view = View::free(name, dir.without_chroot());
        view.lineage = self.lineage;
        let held = self.held();
        let lock_holders = held.iter().filter(|held| held.mode.limit().is_none()).count();
        for held in held {
            if let Some(first) = held.nodes.first() {
                view.add_holder(held.mode, first.holder(config));
            }
        }
        let of_lock = self.lock_queue[lock_holders..].iter();
        let of_lock = of_lock.map(|(node, stored)| stored.waiter(config).of_mode(mode_of(node)));
        // The count of permits that a claim waits for is not stored.
        let of_permits = self.permits_queue.iter().map(|stored| stored.waiter(config));
        view.waiters = of_lock.chain(of_permits).collect();
        view
    }
}
