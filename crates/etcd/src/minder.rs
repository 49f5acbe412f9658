//! What a client does by itself while it has leases: keeps them alive, watches the keys of what is held for long, ends claims for which
//! nobody spoke in time, and names that were kept for long enough.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::Instant;
use tokio::sync::Notify;

use crate::{
    book::Overdue,
    client::Client,
    engine::REQUEST_TIMEOUT,
    lock_of, runtime,
    session::Want,
    watches::{Begin, Target},
    wire::Revoke,
};

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
            match session.step(now) {
                Want::Nothing(at) => next = next.min(at),
                Want::KeepAlive => match self.link.live() {
                    Some(conn) => conn.keep_alive(session.id),
                    None => {
                        let link = self.link.clone();
                        runtime::spawn(async move { drop(link.conn().await) });
                    }
                },
                Want::Revoke => {
                    self.forget_lease(session.id);
                    let (client, id) = (Arc::clone(self), session.id);
                    runtime::spawn(async move {
                        // If it does not arrive, the lease ends by itself.
                        let _ = runtime::within(REQUEST_TIMEOUT, client.ask(Revoke { id })).await;
                    });
                }
                Want::Forget => self.lease_is_gone(session.id),
            }
        }
        let (overdue, lasting) = {
            let mut book = self.book();
            (book.overdue(now), book.lasting(now))
        };
        if let Some(conn) = self.link.live() {
            for (id, key, revision) in lasting {
                conn.watches.watch(Target::Own(id), (key, Vec::new()), Begin::Now { seen: revision });
            }
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
        let ended: Vec<i64> = {
            let mut kept = lock_of(&self.kept);
            next = kept.iter().map(|(until, _)| *until).filter(|until| *until > now).fold(next, Instant::min);
            kept.extract_if(.., |(until, _)| *until <= now).map(|(_, lease)| lease).collect()
        };
        for lease in ended {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.end_kept(lease)).await;
            });
        }
        let due = [self.book().next_due(), self.mind_kept(now)];
        due.into_iter().flatten().fold(next, Instant::min)
    }
    /// Takes away what keeps names for longer than was said; says when the next one is over.
    fn mind_kept(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (over, next) = {
            let mut kept = lock_of(&self.kept_keys);
            (kept.over(now), kept.next_over())
        };
        for (key, revision) in over {
            let client = Arc::clone(self);
            runtime::spawn(async move {
                let _ = runtime::within(REQUEST_TIMEOUT, client.take_away(key, revision)).await;
            });
        }
        next
    }
}
