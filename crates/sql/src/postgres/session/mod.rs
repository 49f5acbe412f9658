//! Locks of a session: advisory locks, which need no tables.

mod exchange;
mod guarantee;
mod look;
mod open;
mod pinned;
mod statements;

pub(super) use look::how_to_end;
pub(super) use open::check_not_shared;
pub(super) use pinned::NOT_PINNED;
use std::sync::{Arc, Weak};

use leasehold_core::{BoxFuture, Contact, Diagnostic, EngineError, Env, Modes, Name};

use super::{
    config::Config,
    diagnose::{Subject, diagnose},
    dial::within_dial_limit,
};
use crate::{
    SessionEngine, SessionOptions,
    database::Failed,
    session::{
        lock_key::{Key, LockKey},
        server::{NameKeys, Session, SessionEvents, SessionServer},
        table::AllPermitKeys,
    },
};

/// How many permits a name may have: each is a key, and a claim tries them one after another.
const MAX_PERMITS: u32 = 1024;

/// Locks of one session of a PostgreSQL server, without tables. This function does not connect to the server; the first
/// request does. All locks of the engine are on one connection.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn session_engine(config: Config, options: SessionOptions, env: &Env) -> SessionEngine {
    let contact = Contact::default();
    let modes = if options.lock_key == LockKey::Own { Modes::All } else { Modes::Locks };
    let server = Arc::new(PostgresSessions { config, options, env: env.clone() });
    SessionEngine::of(server, "postgres", modes, contact, env)
}

/// The sessions of one client on a PostgreSQL server.
struct PostgresSessions {
    config: Config,
    options: SessionOptions,
    env: Env,
}

impl PostgresSessions {
    /// The text from which the key of a name is derived.
    fn text(&self, name: &Name) -> String {
        format!("{}{name}", self.options.prefix)
    }
}

impl SessionServer for PostgresSessions {
    fn open(
        &self,
        session: u64,
        events: Weak<dyn SessionEvents>,
    ) -> BoxFuture<'_, Result<Arc<dyn Session>, Failed>> {
        Box::pin(async move {
            let opening = open::open(&self.config, &self.options, &self.env, session, events);
            let session = within_dial_limit(&self.config, opening).await?;
            Ok(Arc::new(session) as Arc<dyn Session>)
        })
    }

    fn keys(&self, name: &Name) -> Result<NameKeys, EngineError> {
        let lock = self.options.lock_key.postgres(&self.text(name)).map_err(EngineError::from)?;
        let (waiters, poller) = (Some(lock.beside("waiters")), Some(lock.beside("poller")));
        Ok(NameKeys { lock, waiters, poller })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        Box::pin(diagnose(&self.config, &Subject::Sessions))
    }

    fn has_shared_locks(&self) -> bool {
        true
    }

    fn permit_keys(&self, name: &Name, limit: u32) -> Result<AllPermitKeys, EngineError> {
        if limit > MAX_PERMITS {
            let message =
                format!("a name has at most {MAX_PERMITS} permits with hold=session: each is a key");
            return Err(EngineError::new(leasehold_core::Fault::Misconfigured, message));
        }
        let text = self.text(name);
        let key = |permit| self.options.lock_key.postgres_permit(&text, permit);
        let keys: Result<Vec<Key>, Failed> = (0..limit).map(key).collect();
        let gate = self.keys(name)?.lock.beside("gate");
        Ok((keys.map_err(EngineError::from)?, gate))
    }
}
