//! The way of one request: to the server that has its keys, and on from there if they have moved.

use std::sync::Arc;

use leasehold_core::{EngineError, Fault};

use super::Reach;
use crate::{
    conn::Conn,
    error::Refused,
    outbox::{Items, To, Values},
    scripts::Script,
};

/// One request on its way.
pub(crate) struct Way<'a> {
    reach: &'a Reach,
    slot: u16,
    /// The connection by which it went last.
    last: u64,
    /// How many servers said that they are not the one that has the locks.
    demoted: u32,
}

/// So many servers in a row that are no masters are enough: core asks again in a while.
const MOST_DEMOTED: u32 = 3;

/// The connection by which a request goes, and what is said of it there.
pub(crate) struct Via {
    pub(crate) conn: Arc<Conn>,
    pub(crate) to: To,
}

impl<'a> Way<'a> {
    pub(crate) const fn new(reach: &'a Reach, slot: u16) -> Self {
        Self { reach, slot, last: 0, demoted: 0 }
    }

    /// The connection to the server that is to be asked next.
    pub(crate) async fn via(&mut self) -> Result<Via, EngineError> {
        let via = self.reach.via(self.slot).await?;
        self.last = via.conn.number;
        Ok(via)
    }

    /// The server refused the request: the error, if none is to be asked besides.
    pub(crate) async fn again(&mut self, refused: Refused) -> Result<(), EngineError> {
        if let Refused::Demoted(error) = refused {
            self.demoted += 1;
            let found = self.reach.demoted(self.last, error.again());
            return if self.demoted > MOST_DEMOTED {
                Err(EngineError::new(Fault::Retry, error.message))
            } else {
                found
            };
        }
        Err(refused.into())
    }
}

impl Via {
    /// Runs a script for these items.
    pub(crate) async fn run(&self, script: Script, items: Items) -> Result<Values, Refused> {
        self.conn.run(self.to, script, items).await
    }

    /// The key of the newest token here.
    pub(crate) fn counter(&self) -> String {
        self.conn.ears.counter(self.to.slot).into_owned()
    }
}
