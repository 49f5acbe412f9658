//! The `SqlEngine`: the five verbs and `Inspect` on a database, by way of `Client` and the `Database` trait.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

pub(crate) use leasehold_core::REQUEST_TIMEOUT;
use leasehold_core::{
    BoxFuture, Breaking, Broken, Contact, Diagnostic, EngineError, Fault, Guarantee, Inspect,
    MAX_NAMES_AT_ONCE, Name, NoticeSender, Profile, View, Watched,
};

use crate::{
    client::{Client, reply_mismatch, within_request_timeout},
    database::LookResult,
    step::{REQUEST_LIFE, Reply, Snapshot, Verb},
};

/// How often core asks for a waiting claim. Grants arrive by notification, or by one statement that polls for all
/// waiting claims, so the requests of core are only the last fallback: at the longest interval, a thousand waiting
/// claims cause less than two such requests a second.
const POLL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// The ttls that a hold may have.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// The maximum number of names that one statement inspects.
const MAX_LOOKED_AT: usize = 500;

/// Locks in the tables of one database.
pub struct SqlEngine {
    pub(crate) client: Arc<Client>,
    profile: Profile,
}

impl SqlEngine {
    /// Builds the engine, with the profile that all databases share.
    pub(crate) fn of(client: Arc<Client>, engine: &'static str, contact: Option<Contact>) -> Self {
        let mut profile = Profile::new(engine);
        profile.push = true;
        profile.poll = POLL;
        profile.entry_life = client.queue_entry_life(Duration::ZERO);
        profile.tokens = 64;
        profile.claims_at_once = MAX_NAMES_AT_ONCE;
        profile.fifo = true;
        profile.supports_min_hold = true;
        profile.breaking = Breaking::Lease;
        profile.ttl = TTL;
        profile.request_life = REQUEST_LIFE;
        profile.no_memos = None;
        profile.no_conversion = None;
        profile.no_handles = None;
        profile.contact = contact;
        Self { client, profile }
    }

    /// The views of these names.
    async fn look(&self, names: &[Name]) -> Result<Vec<View>, EngineError> {
        Ok(views(&self.look_rows(names).await?))
    }

    /// The rows of these names.
    async fn look_rows(&self, names: &[Name]) -> Result<LookResult, EngineError> {
        Ok(within_request_timeout(self.client.database.look(names)).await?)
    }
}

/// Converts rows to views, as operators see them.
fn views(look_result: &LookResult) -> Vec<View> {
    let view = |(name, snapshot): &(Name, Snapshot)| {
        let mut view = snapshot.view(name);
        if look_result.by_replica {
            view.lineage = None;
        }
        view
    };
    look_result.snapshots.iter().map(view).collect()
}

/// Whether a single row may cause this error: a row that leasehold did not write, or a row that is too large.
const fn may_come_from_one_row(error: &EngineError) -> bool {
    matches!(error.fault, Fault::Misconfigured | Fault::Refused)
}

/// The key of a name: the name itself, which is the key of its row.
fn key(name: &Name) -> String {
    name.as_str().to_owned()
}

leasehold_core::forward_engine!(SqlEngine, conversions: client, memos: client, claim_all, |client| client.mailbox.read());

impl Inspect for SqlEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move { Ok(within_request_timeout(self.client.database.ping()).await?) })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move { Ok(within_request_timeout(self.client.database.guarantee()).await?) })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        // Without the limit of one request: a diagnosis takes several requests.
        Box::pin(async move { Ok(self.client.database.diagnose().await?) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let names = within_request_timeout(self.client.database.names(prefix)).await?;
            let mut views = Vec::new();
            for chunk in names.chunks(MAX_LOOKED_AT) {
                match self.look(chunk).await {
                    // One unreadable row does not hide the others.
                    Err(error) if may_come_from_one_row(&error) => {
                        for name in chunk {
                            match self.look(std::slice::from_ref(name)).await {
                                Err(error) if may_come_from_one_row(&error) => {
                                    views.push(View::unreadable(name.clone(), key(name), &error));
                                }
                                view => views.extend(view?),
                            }
                        }
                    }
                    chunk_views => views.extend(chunk_views?),
                }
            }
            views.retain(|view| {
                !view.holders.is_empty() || !view.waiters.is_empty() || view.problem.is_some()
            });
            views.sort_by(|left, right| left.name.cmp(&right.name));
            Ok(views)
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move {
            let view = self.look(std::slice::from_ref(name)).await?.pop();
            Ok(view.unwrap_or_else(|| View::free(name.clone(), key(name))))
        })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move {
            // Breaking a hold that does not exist creates no tables.
            let look_result = self.look_rows(std::slice::from_ref(name)).await?;
            // A replica can lack rows that the primary has, so a row that is missing on a replica proves nothing. In
            // that case the request below fails on the replica, and its error says why.
            if look_result.snapshots.is_empty() && !look_result.by_replica {
                return Ok(Broken::NotHeld);
            }
            let verb = Verb::Break { name: name.clone(), token, force };
            match self.client.apply(name, &verb).await? {
                Reply::Broken(broken) => Ok(broken),
                _ => Err(reply_mismatch()),
            }
        })
    }

    fn tell_changes<'a>(
        &'a self,
        _: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        self.client.database.tell_changes(notices)
    }
}

impl fmt::Debug for SqlEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlEngine").field("engine", &self.profile.engine).finish_non_exhaustive()
    }
}
