//! The newest token seen of each name, to notice an engine that lost or restored its state (R10).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::{Name, Token};

/// Names remembered. Beyond, all are forgotten at once: the check is a net under the engine's own promise, and memory is bounded.
const MOST: usize = 4096;

#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<Name, Token>>);

impl Seen {
    /// Remembers the last token of a grant. False when a token as large or larger of this name and lineage was seen before.
    pub(crate) fn grows(&self, name: &Name, first: Token, last: Token) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = seen.get_mut(name) {
            if newest.lineage == first.lineage && newest.number >= first.number {
                return false;
            }
            *newest = last;
            return true;
        }
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(name.clone(), last);
        true
    }
}
