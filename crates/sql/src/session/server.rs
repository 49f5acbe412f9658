//! What the engine asks of a database with session locks: PostgreSQL and MySQL implement these traits in their own
//! statements.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{BoxFuture, Diagnostic, EngineError, Guarantee, Lineage, Name};

use super::lock_key::Key;
use crate::database::Failed;

/// Whether a key is locked for one session alone, or beside other sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Alone,
    Beside,
}

/// The keys of a name.
#[derive(Clone, Debug)]
pub(crate) struct NameKeys {
    /// The lock itself.
    pub(crate) lock: Key,
    /// Every process with a waiting claim locks this key beside the others, so a release knows whether a process waits.
    /// `None` on a database that cannot notify.
    pub(crate) waiters: Option<Key>,
    /// One of the waiting processes locks this key alone, and polls often. `None`: every waiting process polls.
    pub(crate) poller: Option<Key>,
}

/// Locks to take in a session: all or none.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    /// The lock of the name; `None` if the session has it already.
    pub(crate) lock: Option<(Key, Share)>,
    /// The permits to take beside the lock.
    pub(crate) permits: Option<PermitKeys>,
}

/// Permits to take: some of these keys.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL has no permits"))]
pub(crate) struct PermitKeys {
    /// The keys of the permits that this session does not have.
    pub(crate) candidates: Vec<Key>,
    /// How many of them to lock.
    pub(crate) count: usize,
    /// A key that serialises the sessions that take several permits, so that two of them do not refuse each other.
    pub(crate) gate: Key,
}

/// A lock to end in a session.
#[derive(Clone, Debug)]
pub(crate) struct Unlock {
    pub(crate) key: Key,
    pub(crate) share: Share,
    /// The key of the waiters to notify, if another session has that key.
    pub(crate) wake: Option<Key>,
}

/// A name for which this process begins to wait.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) keys: NameKeys,
    /// Whether the session locks the key of the waiters already.
    pub(crate) announced: bool,
    /// Whether the session locks the key of the poller already.
    pub(crate) polls: bool,
}

/// What one round trip does in a session, in this order. No key is in it twice, and no key is in two batches at the
/// same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) unlocks: Vec<Unlock>,
    /// The notifications of the watched names arrive before their locks are tried.
    pub(crate) watches: Vec<Watch>,
    pub(crate) tries: Vec<Try>,
    /// The keys of the waiters whose notifications are not needed any more.
    pub(crate) unwatched: Vec<Key>,
}

/// The outcome of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchReply {
    /// For each unlock: whether waiters were notified.
    pub(crate) woke: Vec<bool>,
    /// For each watch: whether the session has the key of the waiters and the key of the poller.
    pub(crate) watched: Vec<(bool, bool)>,
    /// For each try.
    pub(crate) tried: Vec<Tried>,
    /// The number of the tokens of the grants of this batch, read after all locks of the batch were taken: larger than
    /// the number of every earlier grant of the same names.
    pub(crate) token: u64,
}

/// The outcome of a [`Try`].
#[derive(Clone, Debug)]
pub(crate) enum Tried {
    /// The session has the lock, and these permits.
    Granted(Vec<Key>),
    /// Another session has the lock, or too many permits. The session took nothing.
    Taken,
    /// The try failed, and the other parts of the batch did not. The session took nothing.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a try of permits fails alone"))]
    Failed(Failed),
}

/// Why a batch has no reply.
#[derive(Clone, Debug)]
pub(crate) enum BatchFailed {
    /// Its unlocks are done, and its tries took nothing: the session is as before.
    Undone(Failed),
    /// The session is not usable any more; all its locks end.
    Ended(Failed),
}

/// A pinned session: one connection whose requests are all served by one session of the server.
pub(crate) trait Session: Send + Sync + 'static {
    /// Does all of the batch in one round trip. Also checks that the session is still the one that was opened.
    fn exchange<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<BatchReply, BatchFailed>>;

    /// One round trip that proves that the session is still the one that was opened.
    fn heartbeat(&self) -> BoxFuture<'_, Result<(), BatchFailed>>;

    /// Whether the session has ended.
    fn has_ended(&self) -> bool;

    /// Closes the connection. The server ends the session as soon as it notices.
    fn close(&self);

    /// The address of the server, for messages.
    fn address(&self) -> String;

    /// The id of the session on the server, as in [`KeyHolder`].
    fn id(&self) -> String;

    /// The lineage of the tokens.
    fn lineage(&self) -> Lineage;

    /// For how long a hold is valid after a request that the server answered, at most. The server keeps a session that
    /// has vanished for longer than this.
    fn longest_ttl(&self) -> Duration;

    /// How many keys the session may have, so that the other sessions of the server find room for their locks.
    fn max_keys(&self) -> usize;

    /// The rest of the lock delay when the session was opened: until then nothing is granted.
    fn lock_delay(&self) -> Duration;

    /// What the server promises, as it is configured now.
    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>>;

    /// Those of these keys that are in use on the server, or, without keys, every key in use there.
    fn look<'a>(&'a self, keys: Option<&'a [Key]>) -> BoxFuture<'a, Result<Vec<KeyView>, Failed>>;

    /// A key as the server's own views show it.
    fn shown(&self, key: &Key) -> String;

    /// How an operator ends the session with this id, for messages.
    fn how_to_end(&self, session: &str) -> String;
}

/// A key that is in use on the server.
#[derive(Clone, Debug)]
pub(crate) struct KeyView {
    pub(crate) key: Key,
    /// The key as the server's own views show it.
    pub(crate) shown: String,
    /// The sessions that have it.
    pub(crate) holders: Vec<KeyHolder>,
    /// The sessions that wait for it in the server.
    pub(crate) waiters: Vec<KeyHolder>,
}

/// A session that has or awaits a key.
#[derive(Clone, Debug)]
pub(crate) struct KeyHolder {
    /// The id of the session on the server.
    pub(crate) session: String,
    pub(crate) share: Share,
    /// The program and its address, as far as the server tells.
    pub(crate) owner: String,
    /// Whether the session is one of leasehold.
    pub(crate) ours: bool,
}

/// Receives the events of the sessions.
pub(crate) trait SessionEvents: Send + Sync + 'static {
    /// The names with this key of their waiters may be free.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL notifies nobody"))]
    fn may_be_free(&self, waiters: &Key);

    /// The connection of the session with this number ended.
    fn ended(&self, session: u64);
}

/// A database with session locks.
pub(crate) trait SessionServer: Send + Sync + 'static {
    /// Connects and pins a session; refuses servers on which a session lock does not exclude. `session` is the number
    /// of the session for `events`.
    fn open(
        &self,
        session: u64,
        events: Weak<dyn SessionEvents>,
    ) -> BoxFuture<'_, Result<Arc<dyn Session>, Failed>>;

    /// The keys of a name. Only after a session was opened: the server can have a part in them.
    fn keys(&self, name: &Name) -> Result<NameKeys, EngineError>;

    /// Whether sessions can share a lock.
    fn has_shared_locks(&self) -> bool;

    /// What an operator should know of the server beside the guarantee. Changes nothing.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>>;

    /// The keys of the permits of a name, and the key of the gate.
    fn permit_keys(&self, name: &Name, limit: u32) -> Result<(Vec<Key>, Key), EngineError>;
}

impl KeyView {
    /// A key that no session has or awaits.
    pub(crate) fn unused(key: &Key, shown: String) -> Self {
        Self { key: key.clone(), shown, holders: Vec::new(), waiters: Vec::new() }
    }
}
