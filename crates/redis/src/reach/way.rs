//! The way of one request: to the server that has its keys, and on from there if they have moved.

use std::sync::Arc;

use leasehold_core::EngineError;

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
}

/// The connection by which a request goes, and what is said of it there.
pub(crate) struct Via {
    pub(crate) conn: Arc<Conn>,
    pub(crate) to: To,
}

impl<'a> Way<'a> {
    pub(crate) const fn new(reach: &'a Reach, slot: u16) -> Self {
        Self { reach, slot }
    }

    /// The connection to the server that is to be asked next.
    pub(crate) async fn via(&mut self) -> Result<Via, EngineError> {
        self.reach.via(self.slot).await
    }

    /// The server refused the request: the error, if none is to be asked besides.
    pub(crate) async fn again(&mut self, refused: Refused) -> Result<(), EngineError> {
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
