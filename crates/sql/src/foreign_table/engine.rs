//! The engine on a table of another program: the five verbs and `Inspect`, by its client.

use std::{fmt, ops::RangeInclusive, time::Duration};

use leasehold_core::{Breaking, Contact, Life, Modes, Profile};

use super::{
    client::Client,
    options::{ForeignTable, Layout},
};
use crate::step::REQUEST_LIFE;

/// How often a claim that waits asks: such tables notify nobody. Core asks ever less often, and at the time at which
/// the row becomes free.
const POLL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);
/// The ttls that a hold may have.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

/// Locks in a table of another program.
pub struct ForeignTableEngine {
    client: Client,
    profile: Profile,
}

impl ForeignTableEngine {
    pub(crate) fn of(client: Client, engine: &'static str, table: &ForeignTable, contact: Contact) -> Self {
        let mut profile = Profile::new(engine);
        // A row without a time stays when its holder ends. Its holder asks from time to time whether it is there.
        profile.life = if table.layout.has_time() { Life::Lease } else { Life::Stored };
        profile.poll = POLL;
        profile.no_conversion = Some(leasehold_core::EXCLUSIVE_ONLY);
        profile.modes = Modes::Exclusive;
        // Such tables have no queue: of the claims that wait, the one that asks first is granted.
        profile.fifo = false;
        profile.supports_min_hold = table.layout == Layout::Shedlock;
        profile.breaking = if table.layout.has_owner() { Breaking::Lease } else { Breaking::No };
        profile.ttl = TTL;
        profile.request_life = REQUEST_LIFE;
        profile.contact = Some(contact);
        Self { client, profile }
    }
}

leasehold_core::forward_engine!(ForeignTableEngine, memos: none, |client| {
    let _ = client;
    std::future::pending()
});
leasehold_core::forward_inspect!(ForeignTableEngine, guarantee by Client::guarantee, diagnostics by Client::diagnose);

impl fmt::Debug for ForeignTableEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignTableEngine").field("engine", &self.profile.engine).finish_non_exhaustive()
    }
}
