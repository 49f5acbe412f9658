//! A server, clients with `hold=session`, and programs that call GET_LOCK themselves.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, ClaimId, Engine, Env, Loss, Notification};
use leasehold_sql::{
    SessionEngine, SessionOptions,
    mysql::{Config, session_engine},
};
use leasehold_testkit::server::MariadbServer;
use mysql_async::{Conn, Opts, prelude::Queryable};

use crate::{
    rig::{PATIENCE, Rig},
    until::until,
};

/// Without a lock delay: a server of a test has just started.
pub(crate) fn no_delay() -> SessionOptions {
    SessionOptions::default().delay(Duration::ZERO).unwrap()
}

/// The same, with the keys of another program.
pub(crate) fn keys_of(lock_key: &str) -> SessionOptions {
    no_delay().mysql_lock_key(lock_key).unwrap()
}

/// A client at this URL.
pub(crate) fn session_at(url: &str, options: SessionOptions) -> Arc<SessionEngine> {
    Arc::new(session_engine(Config::from_url(url).unwrap(), options, &Env::system()))
}

impl Rig {
    /// A client with `hold=session`.
    pub(crate) fn session(&self) -> Arc<SessionEngine> {
        self.session_with(no_delay())
    }

    pub(crate) fn session_with(&self, options: SessionOptions) -> Arc<SessionEngine> {
        self.wait_until_it_grants();
        session_at(&format!("//root@127.0.0.1:{}/locks", self.server.port()), options)
    }

    /// Waits for the end of the second in which the server started.
    pub(crate) fn wait_until_it_grants(&self) {
        until("the second of the start is over", || {
            let uptime = self.server.query("SHOW GLOBAL STATUS LIKE 'Uptime'").concat();
            uptime.trim_start_matches(|c: char| !c.is_ascii_digit()) != "0"
        });
    }

    /// A client that connects through the proxy.
    pub(crate) fn proxied_session(&self) -> Arc<SessionEngine> {
        self.wait_until_it_grants();
        session_at(&format!("//root@127.0.0.1:{}/locks", self.proxy.port()), no_delay())
    }

    /// The connections of clients of leasehold.
    pub(crate) fn sessions(&self) -> Vec<String> {
        self.server.query(
            "SELECT id FROM information_schema.processlist WHERE db = 'locks' AND id <> CONNECTION_ID() ORDER BY id",
        )
    }
}

/// A program that calls GET_LOCK itself.
pub(crate) struct Program(Conn);

impl Program {
    pub(crate) async fn connect(server: &MariadbServer) -> Self {
        Self(Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap())
    }

    /// The answer to a lock function.
    pub(crate) async fn ask(&mut self, expression: &str) -> Option<i64> {
        self.0.query_first(format!("SELECT {expression}")).await.unwrap().unwrap()
    }

    pub(crate) async fn locks(&mut self, key: &str) -> bool {
        self.ask(&format!("GET_LOCK('{key}', 0)")).await == Some(1)
    }

    pub(crate) async fn unlocks(&mut self, key: &str) -> bool {
        self.ask(&format!("RELEASE_LOCK('{key}')")).await == Some(1)
    }
}

/// Waits until the engine has reported these holds as lost.
pub(crate) async fn assert_lost(engine: &SessionEngine, claims: &[Claim]) {
    let mut held: Vec<ClaimId> = claims.iter().map(|claim| claim.id).collect();
    let reported = async {
        while !held.is_empty() {
            for notification in engine.notifications().await {
                if let Notification::Lost { id, loss, .. } = notification {
                    assert_eq!(loss, Loss::Gone);
                    held.retain(|held| *held != id);
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.unwrap();
}

/// Waits until a waiting claim is granted or to be asked for again.
pub(crate) async fn event_of(engine: &SessionEngine, claim: ClaimId) -> Notification {
    let reported = async {
        loop {
            for notification in engine.notifications().await {
                match &notification {
                    Notification::Granted { id, .. } | Notification::Recheck { id, .. } if *id == claim => {
                        return notification;
                    }
                    _ => {}
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.unwrap()
}
