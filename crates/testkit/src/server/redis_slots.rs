//! The slots of a private Redis Cluster, and their way from node to node.

use super::{
    cluster::wait_for,
    redis_cluster::{CHANGE_LIMIT, RedisCluster, SLOTS},
    redis_cluster_view::Moving,
    redis_group::wait,
};

/// How long one step may take, in milliseconds, before the node gives up.
const STEP_LIMIT: &str = "10000";

impl RedisCluster {
    /// The slot of a key.
    ///
    /// # Panics
    /// When no node answers.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let mut replies =
            self.members().filter_map(|node| self.group.look(node, &["CLUSTER", "KEYSLOT", key]));
        replies.next().and_then(|lines| lines.concat().parse().ok()).expect("a node answers")
    }

    /// Waits until all nodes that are neither killed, paused nor cut off take one of them for the owner of a slot, and answers which.
    ///
    /// # Panics
    /// When they do not agree: the slot has no owner, for instance.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        wait("an owner of the slot", || {
            let present = self.members().filter(|&node| self.group.is_present(node));
            let owners: Option<Vec<_>> = present.map(|node| self.owner_by(node, slot)).collect();
            let owners = owners?;
            let first = *owners.first()?;
            (owners.iter().all(|&owner| owner == first) && self.group.is_master(first)).then_some(first)
        })
    }

    /// Which node another takes for the owner of a slot: nobody's, or that of one that is killed, paused or cut off, is `None`.
    #[must_use]
    pub fn owner_by(&self, node: usize, slot: u16) -> Option<usize> {
        let view = self.view(node)?;
        let owner = view.iter().find(|known| known.owns(slot))?;
        self.numbered(&owner.id)
    }

    /// The keys of a slot that a node has.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn keys_in_slot(&self, node: usize, slot: u16) -> Vec<String> {
        self.some_keys(node, slot, usize::MAX).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Moves a slot with all its keys, as operators do before Valkey 9 and Redis 8.4, and waits until all nodes know it.
    ///
    /// # Errors
    /// What a node says is wrong: the slot stays open, as it was; that nodes do not agree afterwards.
    ///
    /// # Panics
    /// When the slot has no owner.
    pub fn migrate_slot(&mut self, slot: u16, to: usize) -> Result<(), String> {
        self.open_slot(slot, to)?;
        while self.move_keys(slot, usize::MAX)? > 0 {}
        self.close_slot(slot)
    }

    /// Moves a slot with all its keys in one step (`CLUSTER MIGRATESLOTS`, Valkey 9), and waits until all nodes know it.
    ///
    /// # Errors
    /// What the owner says is wrong: that it knows no such command, for instance. That nodes do not agree afterwards.
    ///
    /// # Panics
    /// When the slot has no owner.
    pub fn migrate_slot_at_once(&mut self, slot: u16, to: usize) -> Result<(), String> {
        let (from, number) = (self.owner(slot), slot.to_string());
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &number, &number, "NODE", &self.ids[to]];
        self.answer(from, &words)?;
        self.until_owned(slot, to)
    }

    /// Begins to move a slot: the new owner takes in what is not there, the old one sends there who asks for it.
    ///
    /// # Errors
    /// What a node says is wrong.
    ///
    /// # Panics
    /// When the slot has no owner.
    pub fn open_slot(&mut self, slot: u16, to: usize) -> Result<(), String> {
        // Soon after a move, an older word of a node may for a moment undo what all had agreed on.
        let opened = wait_for(CHANGE_LIMIT, || match self.try_open(slot, to) {
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

    /// Moves so many keys of an open slot, at most, and answers how many it moved.
    ///
    /// # Errors
    /// What the old owner says is wrong, such as `BUSYKEY` where a key is there already; that the slot is not open.
    pub fn move_keys(&mut self, slot: u16, most: usize) -> Result<usize, String> {
        let (from, to) = self.ends(slot)?;
        let keys = self.some_keys(from, slot, most)?;
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

    /// Ends the move of an open slot: it is the new owner's. Waits until all nodes know it. An old owner that has no other slot becomes
    /// a replica of the new one.
    ///
    /// # Errors
    /// That the old owner still has keys, or that the slot is not open: nothing has changed then. What a node says is wrong; that
    /// nodes do not agree afterwards.
    pub fn close_slot(&mut self, slot: u16) -> Result<(), String> {
        let (from, to) = self.ends(slot)?;
        // The new owner would take the slot all the same.
        if let Some(key) = self.some_keys(from, slot, 1)?.first() {
            return Err(format!("the old owner of slot {slot} still has {key}"));
        }
        // The new owner first: if the others never hear of it from here, they hear of it from there.
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]];
        self.answer(to, &words)?;
        match self.answer(from, &words) {
            // It has heard of it, had no other slot, and became a replica of the new owner.
            Err(error) if error.contains("only with masters") => {}
            answer => drop(answer?),
        }
        self.until_owned(slot, to)
    }

    /// Waits until all nodes know the new owner of a slot.
    fn until_owned(&self, slot: u16, to: usize) -> Result<(), String> {
        let known = wait_for(CHANGE_LIMIT, || {
            let mut present = self.members().filter(|&node| self.group.is_present(node));
            present.all(|node| self.owner_by(node, slot) == Some(to)).then_some(())
        });
        known.ok_or_else(|| format!("slot {slot} is not node {to}'s for all after {CHANGE_LIMIT:?}"))
    }

    /// Leaves a slot without an owner (`CLUSTER DELSLOTS` at all nodes), and waits until all know it.
    ///
    /// # Panics
    /// When they do not.
    pub fn disown_slot(&mut self, slot: u16) {
        let owner = self.owner(slot);
        let number = slot.to_string();
        let others: Vec<_> =
            self.members().filter(|&node| node != owner && self.group.is_present(node)).collect();
        wait("a slot without an owner", || {
            // The owner first, from which the others would hear of it again.
            let nodes = std::iter::once(owner).chain(others.iter().copied());
            let knows =
                |&node: &usize| self.view(node).is_none_or(|view| view.iter().any(|known| known.owns(slot)));
            let knowing: Vec<_> = nodes.filter(knows).collect();
            for &node in &knowing {
                // It may have heard meanwhile.
                let _ = self.answer(node, &["CLUSTER", "DELSLOTS", &number]);
            }
            knowing.is_empty().then_some(())
        });
    }

    /// Gives a slot without an owner to a node, and waits until all nodes know it.
    ///
    /// # Panics
    /// When it has an owner, or they do not hear of it.
    pub fn own_slot(&mut self, slot: u16, node: usize) {
        self.command(node, &["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        assert_eq!(self.owner(slot), node);
    }

    /// From and to where an open slot is moved.
    fn ends(&self, slot: u16) -> Result<(usize, usize), String> {
        let out = |node: usize| {
            let view = self.view(node)?;
            let own = view.iter().find(|known| known.is("myself"))?;
            own.moving.iter().find_map(|moving| match moving {
                Moving::Out(number, to) if *number == slot => Some((node, self.numbered(to)?)),
                Moving::Out(..) | Moving::In(..) => None,
            })
        };
        self.members().find_map(out).ok_or_else(|| format!("slot {slot} of {SLOTS} is not open"))
    }

    /// The number of the node with this id.
    fn numbered(&self, id: &str) -> Option<usize> {
        self.members().find(|&node| self.ids[node] == id)
    }

    fn some_keys(&self, node: usize, slot: u16, most: usize) -> Result<Vec<String>, String> {
        let slot = slot.to_string();
        let count = self.answer(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot])?.concat();
        let count = count.parse::<usize>().map_err(|error| error.to_string())?.min(most).to_string();
        self.answer(node, &["CLUSTER", "GETKEYSINSLOT", &slot, &count])
    }
}
