//! One pinned session: its connection, and how its end is noticed.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::Lineage;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Row, Statement, types::ToSql};

use super::statements::{HEARTBEAT, Sql, TRY, TRY_ONE, UNLOCK, UNLOCK_ONE};
use crate::{
    database::Failed,
    postgres::{
        dial::DriverConnection,
        error::{Stage, classify},
        rows::column,
    },
    runtime,
    session::{guarantee::Path, lock_key::Key, server::SessionEvents},
};

/// A session on the server, on a connection that only it uses.
pub(super) struct PinnedSession {
    pub(super) client: Client,
    pub(super) prepared: Prepared,
    pub(super) identity: Identity,
    pub(super) life: Arc<ConnectionLife>,
    pub(super) address: String,
    /// The lock delay that the options ask for, and its rest when the session was opened.
    pub(super) delay: Duration,
    pub(super) delay_left: Duration,
    /// Half of the locks for which the server has room.
    pub(super) max_keys: usize,
    /// Whether the server took our time limits for a silent connection; also true where the connection is local.
    pub(super) has_timeouts: bool,
    pub(super) path: Path,
}

/// The statements that are sent often.
pub(super) struct Prepared {
    pub(super) try_keys: Statement,
    pub(super) try_one: Statement,
    pub(super) unlock: Statement,
    pub(super) unlock_one: Statement,
    pub(super) heartbeat: Statement,
}

/// What identifies the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// A random text that this client stored in the session.
    pub(super) mark: String,
    pub(super) lineage: Lineage,
}

/// Whether the connection lives.
#[derive(Default)]
pub(super) struct ConnectionLife {
    ended: AtomicBool,
    /// Notified to close the connection.
    closing: Notify,
    /// Reports the end of the connection; `None` until the session is opened.
    report: Mutex<Option<(u64, Weak<dyn SessionEvents>)>>,
}

impl ConnectionLife {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        self.ended.store(true, Ordering::Release);
        self.closing.notify_one();
    }

    /// From now on the end of the connection is reported.
    pub(super) fn report_to(&self, session: u64, events: Weak<dyn SessionEvents>) {
        *crate::client::lock_mutex(&self.report) = Some((session, events));
    }

    /// The receiver of events, if the session is opened.
    fn receiver(&self) -> Option<(u64, Arc<dyn SessionEvents>)> {
        let (session, events) = crate::client::lock_mutex(&self.report).clone()?;
        Some((session, events.upgrade()?))
    }
}

/// Drives a connection until it ends or is closed.
pub(super) fn drive(mut connection: DriverConnection, life: &Arc<ConnectionLife>) {
    let end = EndOfConnection(Arc::clone(life));
    runtime::spawn(async move {
        let life = &end.0;
        let messages = async {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message
                    && let Some((_, events)) = life.receiver()
                    && let Ok(waiters) = notification.payload().parse()
                {
                    events.may_be_free(&Key::Bigint(waiters));
                }
            }
        };
        tokio::select! {
            () = messages => {}
            () = life.closing.notified() => {}
        }
    });
}

/// Reports the end of the connection when dropped, however the connection ends.
struct EndOfConnection(Arc<ConnectionLife>);

impl Drop for EndOfConnection {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        if let Some((session, events)) = self.0.receiver() {
            events.ended(session);
        }
    }
}

impl Prepared {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let prepare = |sql: &'static Sql| client.prepare_typed(sql.text, sql.types);
        let (try_keys, try_one, unlock, unlock_one, heartbeat) = tokio::try_join!(
            biased;
            prepare(&TRY), prepare(&TRY_ONE), prepare(&UNLOCK), prepare(&UNLOCK_ONE), prepare(&HEARTBEAT)
        )?;
        Ok(Self { try_keys, try_one, unlock, unlock_one, heartbeat })
    }
}

impl PinnedSession {
    /// Fails unless the columns from `start` on, an id and a mark, are those of this session.
    pub(super) fn check_pin(&self, row: &Row, start: usize) -> Result<(), Failed> {
        let (pid, mark): (i32, &str) = (column(row, start)?, column(row, start + 1)?);
        if pid == self.identity.pid && mark == self.identity.mark {
            return Ok(());
        }
        Err(not_pinned())
    }
}

impl Drop for PinnedSession {
    fn drop(&mut self) {
        self.life.close();
    }
}

/// Executes a statement without keeping it prepared.
pub(super) async fn query(
    client: &Client,
    sql: &'static Sql,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let typed: Vec<_> = parameters.iter().copied().zip(sql.types.iter().cloned()).collect();
    client.query_typed(sql.text, &typed).await
}

/// Executes a statement that returns one row.
pub(super) async fn query_one(
    client: &Client,
    sql: &'static Sql,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Row, Failed> {
    let rows = query(client, sql, parameters).await.map_err(|error| classify(&error, Stage::BeforeCommit))?;
    rows.into_iter().next().ok_or_else(no_row)
}

/// The error for a statement that returned no row where it always returns one.
pub(super) fn no_row() -> Failed {
    Failed::new(leasehold_core::Fault::Internal, "the server sent no row")
}

/// The beginning of the message of [`not_pinned`].
pub(in crate::postgres) const NOT_PINNED: &str =
    "requests of one connection are served by several sessions of the server";

/// The error for a connection that does not lead to one session of the server.
pub(super) fn not_pinned() -> Failed {
    let message = format!(
        "{NOT_PINNED}, as a pooler with pool_mode = transaction does: hold=session needs the server itself, or pool_mode = session"
    );
    Failed::new(leasehold_core::Fault::Misconfigured, message)
}
