//! Which claim keeps which from its grant: the edges of a picture of who waits for whom.

use super::{
    claims::{Claims, Look, Party, Queue},
    reduction::{conflicts, mode_of_waiter},
};

/// The most edges of one waiter: more would say nothing.
const MAX_BLOCKERS: usize = 64;

/// A claim waits because of another claim on the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The claim that waits.
    pub waiter: Party,
    /// The claim that keeps it from its grant: a holder, or the next conflicting claim ahead of it in the queue.
    pub blocker: Party,
}

/// Who waits for whom now: for each waiter the holders with which it conflicts, and the claim ahead of it if there is
/// one with which it conflicts. At most 64 holders of one waiter are told.
#[must_use]
pub fn blocks(looks: &[Look<'_>]) -> Vec<Block> {
    let claims = Claims::of(looks);
    let mut blocks = Vec::new();
    for queue in &claims.queues {
        for (place, waiter) in queue.waiters.iter().enumerate() {
            let party = |claim: usize| claims.parties[claim].clone();
            let blockers = blockers(&claims, queue, place, queue.holders.iter().copied());
            blocks.extend(blockers.map(|blocker| Block { waiter: party(*waiter), blocker: party(blocker) }));
        }
    }
    blocks
}

/// The claims that keep the waiter at this place from its grant: those of `holders` with which it conflicts, then the
/// claim next ahead with which it conflicts.
pub(super) fn blockers<'a>(
    claims: &'a Claims,
    queue: &'a Queue,
    place: usize,
    holders: impl Iterator<Item = usize> + 'a,
) -> impl Iterator<Item = usize> + 'a {
    let wanted = mode_of_waiter(claims, queue, place);
    let in_conflict = holders.filter(move |holder| conflicts(claims.parties[*holder].mode, wanted));
    let ahead = if queue.fifo { &queue.waiters[..place] } else { &[] };
    let before =
        (0..ahead.len()).rev().find(|place| conflicts(Some(mode_of_waiter(claims, queue, *place)), wanted));
    in_conflict.take(MAX_BLOCKERS).chain(before.map(|place| ahead[place]))
}
