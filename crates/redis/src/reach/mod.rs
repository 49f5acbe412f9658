//! The ways to reach Redis. They differ in which server has a slot now, and in what is done when that changes; scripts, outbox,
//! listener and record are the same for all.

use std::sync::{Arc, atomic::AtomicU64};

use leasehold_core::{ClaimId, Clock, Contact, EngineError, Mailbox};

mod one;
mod way;

pub(crate) use one::Dialer;
pub(crate) use way::{Via, Way};

use crate::{
    config::Config,
    keys::channel,
    outbox::{Items, To, Values},
    scripts::Script,
    server::Address,
    servers::{Sentinels, Servers},
};
use one::One;

/// What all connections of one client share.
pub(crate) struct Client {
    pub(crate) config: Config,
    /// Where it hears news, on each server.
    pub(crate) channel: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Counts connections, also those that were not made.
    connections: AtomicU64,
}

/// How this client reaches the servers of its URL.
pub(crate) enum Reach {
    /// One server.
    One(One),
}

impl Client {
    pub(crate) fn new(config: Config, id: ClaimId, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (channel, mailbox) = (channel(id), Arc::default());
        Arc::new(Self { config, channel, clock, mailbox, connections: AtomicU64::new(1) })
    }
}

impl Reach {
    pub(crate) fn new(client: &Arc<Client>, contact: Contact) -> Self {
        let address = match &client.config.servers {
            Servers::One(address) => address.clone(),
            Servers::Sentinel(Sentinels { places, .. }) | Servers::Cluster(places) => {
                Address::Tcp(places[0].clone())
            }
        };
        Self::One(One::new(client, address, contact))
    }

    /// The connection to the server that has the keys of this slot.
    pub(crate) async fn via(&self, _slot: u16) -> Result<Via, EngineError> {
        match self {
            Self::One(one) => Ok(Via { conn: one.conn().await?, to: To::default() }),
        }
    }

    /// A request about keys of this slot sets out.
    pub(crate) const fn way(&self, slot: u16) -> Way<'_> {
        Way::new(self, slot)
    }

    /// Runs a script where the keys of this slot are. The items are made for each server that is asked.
    pub(crate) async fn run(
        &self,
        slot: u16,
        script: Script,
        items: impl Fn(&Via) -> Result<Items, EngineError>,
    ) -> Result<Values, EngineError> {
        let mut way = self.way(slot);
        loop {
            let via = way.via().await?;
            match via.run(script, items(&via)?).await {
                Ok(said) => return Ok(said),
                Err(refused) => way.again(refused).await?,
            }
        }
    }

    /// Of each server that has keys, one slot.
    pub(crate) async fn servers(&self) -> Result<Vec<u16>, EngineError> {
        match self {
            Self::One(_) => Ok(vec![0]),
        }
    }

    /// The claim waits no more, wherever it did.
    pub(crate) fn waits_no_more(&self, claim: ClaimId) {
        match self {
            Self::One(one) => one.ears().waits(claim, false),
        }
    }

    /// Keeps the connections that were made once. Never returns.
    pub(crate) async fn mend(&self) {
        match self {
            Self::One(one) => one.mend().await,
        }
    }
}
