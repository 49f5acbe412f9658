//! What a client does by itself while it has sessions: keeps them alive, watches what is held for long, and ends claims for which nobody
//! spoke in time.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::Instant;
use tokio::sync::Notify;

use crate::{book::Overdue, client::Client, engine::REQUEST_TIMEOUT, runtime, session::Want, wire::Ping};

/// The longest sleep: timers stop while the machine is suspended, the clock does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// What could not be ended is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// The shortest sleep: what is due earlier by less is done together.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Ends when the client is gone.
pub(crate) async fn run(client: Weak<Client>, sooner: Arc<Notify>) {
    loop {
        let rang = sooner.notified();
        let sleep = {
            let Some(client) = client.upgrade() else { return };
            let now = client.now();
            let next = client.mind(now);
            next.since(now).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
        };
        tokio::select! {
            () = rang => {}
            () = runtime::sleep(sleep) => {}
        }
    }
}

impl Client {
    /// Does what is due, and says when to look again.
    fn mind(self: &Arc<Self>, now: Instant) -> Instant {
        let mut next = now.after(LONGEST_SLEEP);
        for session in self.sessions.all() {
            match session.facts.step(now) {
                Want::Nothing(at) => next = next.min(at),
                Want::Beat => {
                    // Without a connection there is one made already.
                    if let Some(conn) = session.link.live() {
                        let client = Arc::clone(self);
                        let believes = !self.book().only_stands_in_line(&session);
                        runtime::spawn(async move {
                            let beat = async {
                                if believes {
                                    client.beat(&session, &conn).await
                                } else {
                                    conn.send(&Ping).answer().await
                                }
                            };
                            if let Some(Err(failed)) = runtime::within(REQUEST_TIMEOUT, beat).await {
                                tracing::debug!(?failed, "no heartbeat");
                            }
                        });
                    }
                }
                Want::Close => {
                    self.sessions.forget(&session);
                    runtime::spawn(async move {
                        // If it does not arrive, the session ends by itself.
                        let _ = runtime::within(REQUEST_TIMEOUT, session.close()).await;
                    });
                }
                Want::Forget => self.session_is_gone(&session),
            }
        }
        let (overdue, lasting) = {
            let mut book = self.book();
            (book.overdue(now), book.lasting(now))
        };
        for id in lasting {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.watch_hold(id)).await;
            });
        }
        for overdue in overdue {
            match overdue {
                Overdue::Forget(id) => drop(self.book().remove(id)),
                Overdue::End(id) => {
                    let client = Arc::downgrade(self);
                    let ending = move || {
                        let client = Weak::clone(&client);
                        async move {
                            while let Some(client) = client.upgrade()
                                && !matches!(
                                    runtime::within(REQUEST_TIMEOUT, client.end_overdue(id)).await,
                                    Some(Ok(()))
                                )
                            {
                                drop(client);
                                tracing::debug!(%id, "a claim that did not speak in time is not ended yet");
                                runtime::sleep(AGAIN).await;
                            }
                        }
                    };
                    runtime::spawn(leasehold_core::lasting("end of a claim", ending, || (), runtime::sleep));
                }
            }
        }
        let due = self.book().next_due();
        due.map_or(next, |due| next.min(due))
    }
}
