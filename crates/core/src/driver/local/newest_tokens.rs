//! The newest token seen of each name, to detect an engine that lost or restored its state (R10).

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Name, Token};

/// The most names remembered. When there are more, all are forgotten together, so that the memory stays bounded: the
/// check is only a safety net below the engine's own promise.
const MAX_NAMES: usize = 4096;

/// The newest token of each name that this process has received.
#[derive(Default)]
pub(crate) struct NewestTokens(Mutex<HashMap<Name, Token>>);

impl NewestTokens {
    /// The newest token of a name. The caller must read it before it sends a claim, because grants of concurrent claims
    /// can become known in any order.
    pub(crate) fn newest(&self, name: &Name) -> Option<Token> {
        self.lock().get(name).copied()
    }

    /// Remembers `last`, the last token of a grant whose first token is `first`. False if the grant is not newer than
    /// `newest_before`, the newest token when its claim was sent.
    pub(crate) fn record_if_newer(
        &self,
        name: &Name,
        newest_before: Option<Token>,
        first: Token,
        last: Token,
    ) -> bool {
        if newest_before
            .is_some_and(|newest| newest.lineage == first.lineage && newest.number >= first.number)
        {
            return false;
        }
        let mut tokens = self.lock();
        if let Some(newest) = tokens.get_mut(name) {
            if newest.lineage != last.lineage || newest.number < last.number {
                *newest = last;
            }
            return true;
        }
        if tokens.len() >= MAX_NAMES {
            tokens.clear();
        }
        tokens.insert(name.clone(), last);
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
