//! The quick answer for a claim far back in line. Of a line of a thousand, nearly all would read and judge the whole table
//! under its latch, one after the other, only to learn that they still wait.

use super::{
    card::{Card, State, TICKET},
    claims::Entry,
    engine::FileEngine,
    layout::{CARD, HEAD, MAX_CLAIMS, TableHead, array},
    line::{Placed, is_stalled, stands_before},
    open::Missing,
    table::is_alive,
};
use crate::EngineError;

/// How many must stand before a claim that is answered like this: more than ever hear of a release.
const FAR: u32 = 8;

impl FileEngine {
    /// How many stand before the claim on card `slot`, if they are many and the first of them, who must be granted before
    /// it, lives. Without the latch: what is torn or in doubt is for the long way.
    pub(super) fn far_behind(
        &self,
        entry: &Entry,
        slot: u32,
        ticket: u64,
    ) -> Result<Option<u32>, EngineError> {
        if !entry.lock.is_current(&entry.key)? {
            return Ok(None);
        }
        let Some(state) = self.states.get(&self.dir, &entry.key, Missing::Leave)? else { return Ok(None) };
        let mut head = [0; HEAD];
        state.read(&mut head, 0)?;
        let table = TableHead::from_bytes(&head);
        if table.boot != self.boot || slot > table.cards || table.cards > MAX_CLAIMS {
            return Ok(None);
        }
        let mut bytes = vec![0; table.cards as usize * CARD];
        state.read(&mut bytes, HEAD as u64)?;
        let card = |slot: u32| Card::from_bytes(&array(&bytes, (slot as usize - 1) * CARD)).ok().flatten();
        let own = card(slot).is_some_and(|own| own.id == entry.claim.id && own.rung.is_none());
        let before = (1..=table.cards).filter_map(|slot| {
            let at = (slot as usize - 1) * CARD;
            let other = u64::from_le_bytes(array(&bytes, at + TICKET));
            (bytes[at] == State::Waiting as u8 && other < ticket).then_some((other, slot))
        });
        let (mut ahead, mut first) = (0, None);
        for place in before {
            ahead += 1;
            first = Some(first.map_or(place, |first: (u64, u32)| first.min(place)));
        }
        let Some((_, slot)) = first.filter(|_| own && ahead >= FAR) else { return Ok(None) };
        let Some(card) = card(slot) else { return Ok(None) };
        let blocks = stands_before(card.mode, entry.claim.mode) && !is_stalled(&card, self.env.clock.now());
        Ok((blocks && is_alive(&entry.lock, &Placed { slot, card })?).then_some(ahead))
    }
}
