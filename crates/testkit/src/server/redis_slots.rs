//! The slots of a private Redis Cluster, and how they move between nodes.

use super::{
    cluster::poll_for,
    redis_cluster::{CHANGE_LIMIT, RedisCluster, SLOTS},
    redis_cluster_view::MovingSlot,
    redis_group::poll_until,
};

/// The time limit in milliseconds of one `MIGRATE`, after which the node gives up.
const STEP_LIMIT: &str = "10000";

impl RedisCluster {
    /// The slot of a key.
    ///
    /// # Panics
    /// If no node answers.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let mut replies =
            self.members().filter_map(|node| self.group.query(node, &["CLUSTER", "KEYSLOT", key]));
        replies.next().and_then(|lines| lines.concat().parse().ok()).expect("a node answers")
    }

    /// Waits until all nodes that are neither killed, paused nor cut off name the same owner of a slot, and returns
    /// this owner.
    ///
    /// # Panics
    /// If the nodes do not agree, for instance because the slot has no owner.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        poll_until("an owner of the slot", || {
            let present = self.members().filter(|&node| self.group.is_present(node));
            let owners: Option<Vec<_>> = present.map(|node| self.owner_by(node, slot)).collect();
            let owners = owners?;
            let first = *owners.first()?;
            (owners.iter().all(|&owner| owner == first) && self.group.is_master(first)).then_some(first)
        })
    }

    /// The owner of a slot in the view of a node. `None`: the slot has no owner in this view, or the node is killed,
    /// paused or cut off.
    #[must_use]
    pub fn owner_by(&self, node: usize, slot: u16) -> Option<usize> {
        let view = self.view(node)?;
        let owner = view.iter().find(|known| known.owns(slot))?;
        self.node_with_id(&owner.id)
    }

    /// The keys of a slot on a node.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn keys_in_slot(&self, node: usize, slot: u16) -> Vec<String> {
        self.keys_up_to(node, slot, usize::MAX).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Moves a slot with all its keys, in the steps that operators need with versions before Valkey 9 and Redis 8.4.
    /// Waits until all nodes know the new owner.
    ///
    /// # Errors
    /// The error of a node, after which the move of the slot stays unfinished; or a message that the nodes do not agree
    /// on the owner of the slot after the move.
    ///
    /// # Panics
    /// If the slot has no owner.
    pub fn migrate_slot(&mut self, slot: u16, to: usize) -> Result<(), String> {
        self.open_slot(slot, to)?;
        while self.move_keys(slot, usize::MAX)? > 0 {}
        self.close_slot(slot)
    }

    /// Moves a slot with all its keys in one step (`CLUSTER MIGRATESLOTS`, Valkey 9). Waits until all nodes know the
    /// new owner.
    ///
    /// # Errors
    /// The error of the present owner, for instance that it has no such command. Or a text that says that the nodes do
    /// not agree on the owner of the slot afterwards.
    ///
    /// # Panics
    /// If the slot has no owner.
    pub fn migrate_slot_at_once(&mut self, slot: u16, to: usize) -> Result<(), String> {
        let (from, number) = (self.owner(slot), slot.to_string());
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &number, &number, "NODE", &self.ids[to]];
        self.answer(from, &words)?;
        self.wait_for_owner(slot, to)
    }

    /// Begins to move a slot, which is then *open*: the new owner imports keys, and the old owner redirects requests
    /// for keys that it does not have.
    ///
    /// # Errors
    /// The error of a node.
    ///
    /// # Panics
    /// If the slot has no owner.
    pub fn open_slot(&mut self, slot: u16, to: usize) -> Result<(), String> {
        // Shortly after an earlier move, a delayed message of a node may undo for a moment what the nodes agreed on.
        let opened = poll_for(CHANGE_LIMIT, || match self.try_open(slot, to) {
            Err(error) if error.contains("not the owner") => None,
            answer => Some(answer),
        });
        opened.unwrap_or_else(|| Err(format!("slot {slot} has no lasting owner after {CHANGE_LIMIT:?}")))
    }

    fn try_open(&self, slot: u16, to: usize) -> Result<(), String> {
        let from = self.owner(slot);
        let number = slot.to_string();
        self.answer(to, &["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from]])?;
        self.answer(from, &["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to]]).map(drop)
    }

    /// Moves at most `max` keys of an open slot to the new owner, and returns how many keys it moved.
    ///
    /// # Errors
    /// The error of the old owner, such as `BUSYKEY` if the new owner has the key already. Or a text that says that the
    /// slot is not open.
    pub fn move_keys(&mut self, slot: u16, max: usize) -> Result<usize, String> {
        let (from, to) = self.old_and_new_owner(slot)?;
        let keys = self.keys_up_to(from, slot, max)?;
        if keys.is_empty() {
            return Ok(0);
        }
        let port = self.group.port(to).to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", STEP_LIMIT];
        words.extend(self.password().into_iter().flat_map(|password| ["AUTH", password]));
        words.push("KEYS");
        words.extend(keys.iter().map(String::as_str));
        self.answer(from, &words)?;
        Ok(keys.len())
    }

    /// Ends the move of an open slot to its new owner, and waits until all nodes know the new owner. If the old owner
    /// has no other slots, it becomes a replica of the new owner.
    ///
    /// # Errors
    /// A text that says that the old owner still has keys or that the slot is not open; in these cases nothing has
    /// changed. Or the error of a node, or a text that says that the nodes do not agree on the owner afterwards.
    pub fn close_slot(&mut self, slot: u16) -> Result<(), String> {
        let (from, to) = self.old_and_new_owner(slot)?;
        // The new owner would take the slot even if the old owner still has keys.
        if let Some(key) = self.keys_up_to(from, slot, 1)?.first() {
            return Err(format!("the old owner of slot {slot} still has {key}"));
        }
        // The new owner gets the command first: if this test cannot reach the other nodes, they learn of the new owner
        // from the new owner itself.
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]];
        self.answer(to, &words)?;
        match self.answer(from, &words) {
            // The old owner had no other slot and has become a replica of the new owner already.
            Err(error) if error.contains("only with masters") => {}
            answer => drop(answer?),
        }
        self.wait_for_owner(slot, to)
    }

    /// Waits until all nodes know the new owner of a slot.
    fn wait_for_owner(&self, slot: u16, to: usize) -> Result<(), String> {
        let reached = poll_for(CHANGE_LIMIT, || {
            let mut present = self.members().filter(|&node| self.group.is_present(node));
            present.all(|node| self.owner_by(node, slot) == Some(to)).then_some(())
        });
        reached.ok_or_else(|| format!("slot {slot} is not node {to}'s for all after {CHANGE_LIMIT:?}"))
    }

    /// Takes a slot away from its owner (`CLUSTER DELSLOTS` at all nodes), and waits until all nodes know that the slot
    /// has no owner.
    ///
    /// # Panics
    /// If the nodes do not learn of the change.
    pub fn unassign_slot(&mut self, slot: u16) {
        let owner = self.owner(slot);
        let number = slot.to_string();
        let others: Vec<_> =
            self.members().filter(|&node| node != owner && self.group.is_present(node)).collect();
        poll_until("a slot without an owner", || {
            // The owner gets the command first, because other nodes would learn again from it that it owns the slot.
            let nodes = std::iter::once(owner).chain(others.iter().copied());
            let knows_owner =
                |&node: &usize| self.view(node).is_none_or(|view| view.iter().any(|known| known.owns(slot)));
            let knowing_nodes: Vec<_> = nodes.filter(knows_owner).collect();
            for &node in &knowing_nodes {
                // The command fails if the node has learned meanwhile that the slot has no owner.
                let _ = self.answer(node, &["CLUSTER", "DELSLOTS", &number]);
            }
            knowing_nodes.is_empty().then_some(())
        });
    }

    /// Gives a slot without an owner to a node, and waits until all nodes know the owner.
    ///
    /// # Panics
    /// If the slot has an owner already, or the nodes do not learn of the new owner.
    pub fn assign_slot(&mut self, slot: u16, node: usize) {
        self.command(node, &["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        assert_eq!(self.owner(slot), node);
    }

    /// The numbers of the old and the new owner of an open slot.
    fn old_and_new_owner(&self, slot: u16) -> Result<(usize, usize), String> {
        let migration_of = |node: usize| {
            let view = self.view(node)?;
            let own = view.iter().find(|known| known.is("myself"))?;
            own.moving.iter().find_map(|moving| match moving {
                MovingSlot::MigratingTo(number, to) if *number == slot => {
                    Some((node, self.node_with_id(to)?))
                }
                MovingSlot::MigratingTo(..) | MovingSlot::ImportingFrom(..) => None,
            })
        };
        self.members().find_map(migration_of).ok_or_else(|| format!("slot {slot} of {SLOTS} is not open"))
    }

    /// The number of the node with this id.
    fn node_with_id(&self, id: &str) -> Option<usize> {
        self.members().find(|&node| self.ids[node] == id)
    }

    /// At most `max` keys that a node has in a slot.
    fn keys_up_to(&self, node: usize, slot: u16, max: usize) -> Result<Vec<String>, String> {
        let slot = slot.to_string();
        let count = self.answer(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot])?.concat();
        let count = count.parse::<usize>().map_err(|error| error.to_string())?.min(max).to_string();
        self.answer(node, &["CLUSTER", "GETKEYSINSLOT", &slot, &count])
    }
}
