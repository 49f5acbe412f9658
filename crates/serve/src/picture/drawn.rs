//! Which waits get an arrow, and which of them are of a deadlock.

use std::collections::{HashMap, HashSet};

use leasehold_ops::waits::{Block, Deadlock, Party};

use super::{TaskKey, task_of};

/// What deadlocks consist of.
#[derive(Default)]
pub(crate) struct Locked {
    pub(super) tasks: HashSet<TaskKey>,
    waits: HashSet<[String; 4]>,
}

impl Locked {
    /// The tasks and the waits of these deadlocks.
    pub(crate) fn by<'d>(deadlocks: impl Iterator<Item = &'d Deadlock>) -> Self {
        let mut locked = Self::default();
        for block in deadlocks.flat_map(|deadlock| &deadlock.blocks) {
            locked.tasks.extend([&block.waiter, &block.blocker].map(task_of));
            locked.waits.insert(wait_of(block).map(str::to_owned));
        }
        locked
    }

    pub(super) fn has(&self, block: &Block) -> bool {
        // Looked for by its parts: most pictures have no deadlock, and a queue can have very many waits.
        let wait = wait_of(block);
        self.waits.iter().any(|known| known.each_ref().map(String::as_str) == wait)
    }
}

/// What identifies a wait because of one other claim.
fn wait_of(block: &Block) -> [&str; 4] {
    let Block { waiter, blocker, .. } = block;
    [&waiter.engine, &waiter.name, &waiter.id, &blocker.id]
}

/// The waits that get an arrow. A wait for the waiter ahead gets none if all holders to which that waiter leads have
/// arrows from this waiter, too: it would be a second arrow for one wait. A wait of a deadlock always gets one.
pub(super) fn with_arrow<'b>(blocks: &'b [Block], locked: &Locked) -> Vec<&'b Block> {
    let claim = |party: &'b Party| (&*party.engine, &*party.name, &*party.id);
    let (mut own, mut led): (HashMap<_, HashSet<&str>>, HashMap<_, HashSet<&str>>) = Default::default();
    for block in blocks.iter().filter(|block| block.blocker.holds) {
        own.entry(claim(&block.waiter)).or_default().insert(&block.blocker.id);
        led.entry(claim(&block.waiter)).or_default().insert(&block.blocker.id);
    }
    let (mut drawn, mut arrows) = (Vec::new(), HashSet::new());
    // Waiters come in the order of their queue, so all is known of the waiter ahead.
    for block in blocks {
        let waiter = claim(&block.waiter);
        let mut is_double = false;
        if !block.blocker.holds {
            let ahead = led.get(&claim(&block.blocker)).cloned().unwrap_or_default();
            is_double = own.get(&waiter).is_some_and(|own| ahead.is_subset(own));
            led.entry(waiter).or_default().extend(ahead);
        }
        let arrow =
            (task_of(&block.waiter), task_of(&block.blocker), &*block.waiter.engine, &*block.waiter.name);
        if locked.has(block) || (!is_double && arrows.insert(arrow)) {
            drawn.push(block);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use leasehold::Mode;

    use super::{
        super::{
            draw,
            tests::{blocks_of, views},
        },
        *,
    };

    /// The owners of the waiter and the blocker of each arrow.
    fn arrows(blocks: &[Block], locked: &Locked) -> Vec<String> {
        let arrow = |block: &&Block| format!("{} {}", block.waiter.owner, block.blocker.owner);
        with_arrow(blocks, locked).iter().map(arrow).collect()
    }

    #[test]
    fn a_waiter_has_an_arrow_to_the_waiter_ahead_if_that_says_more() {
        let mut readers = views(&[("n", "reader", &["writer", "late", "last"])]);
        readers[0].holders[0].mode = Some(Mode::Shared);
        readers[0].mode = Some(Mode::Shared);
        for (waiter, mode) in [(0, Mode::Exclusive), (1, Mode::Shared), (2, Mode::Exclusive)] {
            readers[0].waiters[waiter].mode = Some(mode);
        }
        let blocks = blocks_of(&readers);
        // A reader behind a writer does not wait for the holder, which reads too.
        let expected = ["<writer> <reader>", "<late> <writer>", "<last> <reader>"];
        assert_eq!(arrows(&blocks, &Locked::default()), expected);
    }

    #[test]
    fn each_wait_of_a_deadlock_has_an_arrow() {
        let blocks = blocks_of(&views(&[("n", "h", &["w", "x"])]));
        let behind = blocks.iter().find(|block| !block.blocker.holds).unwrap();
        let mut locked = Locked::default();
        locked.waits.insert(wait_of(behind).map(str::to_owned));
        assert_eq!(arrows(&blocks, &locked), ["<w> <h>", "<x> <h>", "<x> <w>"]);
        let svg = draw(&blocks, &locked).into_string();
        assert_eq!(svg.matches("<path class=\"locked\"").count(), 1, "{svg}");
    }
}
