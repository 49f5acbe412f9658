//! The `SessionEngine`: the verbs and `Inspect` on the locks of sessions.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Contact, Diagnostic, Engine, EngineError, Env, Fault,
    Guarantee, Hold, HolderView, How, Inspect, Life, Mode, Modes, Name, Notification, Profile, Release,
    Released, Renewed, View, WaiterView, cannot_claim_all,
};

use super::{
    client::{NumberedSession, SessionClient},
    lock_key::Key,
    server::{KeyHolder, KeyView, SessionServer, Share},
    table::{LocalView, REQUEST_LIFE},
};
use crate::client::{lock_mutex, within_request_timeout};

/// How often core asks for a waiting claim. Grants arrive by notification, so the requests of core are only the last
/// fallback.
const POLL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// The ttls that a claim may ask for. A hold is valid for at most the longest ttl of its session.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// How many tokens a grant carries, for hand-over inside the process.
const TOKENS: u32 = 64;

/// Locks of one session of a database: without tables, and free as soon as the session ends.
pub struct SessionEngine {
    client: Arc<SessionClient>,
    profile: Profile,
}

impl SessionEngine {
    /// Builds the engine on a database.
    pub(crate) fn of(
        server: Arc<dyn SessionServer>,
        engine: &'static str,
        modes: Modes,
        contact: Contact,
        env: &Env,
    ) -> Self {
        let mut profile = Profile::new(engine);
        profile.life = Life::Session;
        profile.push = true;
        profile.poll = POLL;
        profile.tokens = TOKENS;
        profile.no_conversion = Some("the lock of a session keeps its mode until it is released");
        profile.modes = modes;
        profile.stores_claims = false;
        profile.extends = false;
        profile.ttl = TTL;
        profile.request_life = REQUEST_LIFE;
        profile.contact = Some(contact.clone());
        Self { client: SessionClient::new(server, contact, env), profile }
    }

    /// The view of a name, from the sessions that have its keys and from the claims of this process.
    fn view(&self, name: &Name, conn: &NumberedSession, lock: &KeyView, waiters: &[KeyHolder]) -> View {
        let own_id = conn.session.id();
        let (state, now) = (lock_mutex(&self.client.state), self.client.clock.now());
        let local: Vec<LocalView> = state.table.views_of(name);
        let lineage = state.table.terms().lineage;
        drop(state);
        let mut view = View::free(name.clone(), lock.shown.clone());
        let local_holder = |claim: &LocalView| {
            HolderView::new(claim.id.to_string(), claim.owner.to_string())
                .token(claim.token.map(|token| token.number))
                .times(Some(now.since(claim.since)), Some(conn.session.longest_ttl()))
                .of_session()
        };
        for holder in &lock.holders {
            let mut local_holds =
                local.iter().filter(|claim| claim.token.is_some() && holder.session == own_id).peekable();
            if local_holds.peek().is_some() {
                view.lineage = Some(lineage);
                local_holds.for_each(|claim| view.add_holder(claim.mode, local_holder(claim)));
            } else {
                let mode = if holder.share == Share::Alone { Mode::Exclusive } else { Mode::Shared };
                view.add_holder(mode, holder.view());
            }
        }
        for claim in local.iter().filter(|claim| claim.token.is_none()) {
            let (id, owner) = (claim.id.to_string(), claim.owner.to_string());
            let waiter = WaiterView::new(id, owner, Some(now.since(claim.since)));
            view.waiters.push(waiter.of_mode(claim.mode));
        }
        for waiter in lock.waiters.iter().chain(waiters).filter(|waiter| waiter.session != own_id) {
            let (id, owner) = (waiter.session.clone(), waiter.owner.clone());
            view.waiters.push(WaiterView::new(id, owner, None));
        }
        view
    }

    /// The view of a name.
    async fn look(&self, name: &Name) -> Result<View, EngineError> {
        let conn = self.client.session().await?;
        let keys = self.client.server.keys(name)?;
        let wanted: Vec<Key> = [keys.lock.clone()].into_iter().chain(keys.waiters.clone()).collect();
        let mut found = within_request_timeout(conn.session.look(Some(&wanted))).await?;
        let waiters = found.iter().position(|view| Some(&view.key) == keys.waiters.as_ref());
        let waiters = waiters.map(|index| found.remove(index).holders).unwrap_or_default();
        let lock = found.into_iter().find(|view| view.key == keys.lock);
        let lock = lock.unwrap_or_else(|| KeyView::unused(&keys.lock, conn.session.shown(&keys.lock)));
        Ok(self.view(name, &conn, &lock, &waiters))
    }
}

impl KeyHolder {
    /// The session as a holder.
    fn view(&self) -> HolderView {
        HolderView::new(self.session.clone(), self.owner.clone()).of_session().foreign(!self.ours)
    }
}

impl Engine for SessionEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, _: &Name) -> Option<u16> {
        // One heartbeat renews all holds, so they are renewed at the same moment.
        Some(0)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.client.claim(claim, how))
    }

    fn claim_all<'a>(&'a self, _: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        cannot_claim_all()
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.client.renew(holds))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(self.client.release(releases))
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.client.mailbox.read())
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        None
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        None
    }
}

impl Inspect for SessionEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let conn = self.client.session().await?;
            self.client.heartbeat(&conn).await
        })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move {
            let conn = self.client.session().await?;
            Ok(within_request_timeout(conn.session.guarantee()).await?)
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(async move { Ok(self.client.server.diagnose().await?) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let conn = self.client.session().await?;
            let mut found = within_request_timeout(conn.session.look(None)).await?;
            let names: Vec<Name> = lock_mutex(&self.client.state).table.names().cloned().collect();
            let mut views = Vec::new();
            for name in names {
                let keys = self.client.server.keys(&name)?;
                let is_own = |view: &mut KeyView| {
                    [keys.waiters.as_ref(), keys.poller.as_ref()].contains(&Some(&view.key))
                };
                let waiters = found.extract_if(.., is_own).flat_map(|view| view.holders).collect::<Vec<_>>();
                let index = found.iter().position(|view| view.key == keys.lock);
                let lock = index.map_or_else(
                    || KeyView::unused(&keys.lock, conn.session.shown(&keys.lock)),
                    |index| found.remove(index),
                );
                views.push(self.view(&name, &conn, &lock, &waiters));
            }
            // Of any other key the name is not known: only its hash is on the server.
            for lock in found {
                let Ok(name) = Name::new(&format!("({})", lock.key)) else { continue };
                let mut view = self.view(&name, &conn, &lock, &[]);
                view.note = Some(UNKNOWN_NAME.to_owned());
                views.push(view);
            }
            views.retain(|view| {
                view.name.as_str().starts_with(prefix)
                    && !(view.holders.is_empty() && view.waiters.is_empty())
            });
            views.sort_by(|left, right| left.name.cmp(&right.name));
            Ok(views)
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(self.look(name))
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        _token: u64,
        _force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move {
            let conn = self.client.session().await?;
            let keys = self.client.server.keys(name)?;
            let found = within_request_timeout(conn.session.look(Some(&[keys.lock]))).await?;
            let Some(holder) = found.first().and_then(|view| view.holders.first()) else {
                return Ok(Broken::NotHeld);
            };
            let message = format!(
                "a hold of a session ends with its session, together with all other holds of that session: to end the session of {}, run {}",
                holder.owner,
                conn.session.how_to_end(&holder.session)
            );
            Err(EngineError::new(Fault::Denied, message))
        })
    }
}

/// The note on a key whose name is not known.
const UNKNOWN_NAME: &str =
    "the server knows only the number of this lock: the process that made it knows its name";

impl fmt::Debug for SessionEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEngine").field("engine", &self.profile.engine).finish_non_exhaustive()
    }
}
