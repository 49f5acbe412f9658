//! The maintenance task of a client: extends the queue entries of its waiting claims and polls for their grants, all
//! in one statement; and ends expired claims and holds in the tables that no other client takes care of.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Fault, Instant, Notification, lock_state::WATCHERS};
use tokio::sync::Notify;

use crate::{
    client::Client,
    database::{Database, Failed},
    poll_interval::PollInterval,
    runtime,
    slots::{Slots, jittered, pause},
};

/// How often a client checks whether the holds ahead of its claims have ended; sooner if their end is known.
const LOOK: Duration = Duration::from_secs(1);
/// The same for a client with many claims ahead.
const LOOK_FAR: Duration = Duration::from_secs(3);
/// How often a client with notifications extends its queue entries, and checks what no notification reports: the
/// death of a client.
const SELDOM: Duration = Duration::from_secs(30);
/// How often a part of the tables is swept; the first time sooner, because many clients live for seconds only.
const SWEEP: Duration = Duration::from_secs(20);
const FIRST_SWEEP: Duration = Duration::from_secs(3);
/// How much longer a sweep may wait while claims wait: clients that hold a lock sweep, too.
const SWEEP_WAITING: Duration = Duration::from_secs(600);
/// How many names one sweep examines.
const SWEPT: i64 = 1000;

/// Runs until the client is gone.
pub(crate) async fn run(client: Weak<Client>, queued: Arc<Notify>) {
    let Some(now) = client.upgrade().map(|client| client.now()) else { return };
    let mut maintenance = Maintenance::new(now);
    // A predecessor of this task may have ended while it was asleep.
    client.upgrade().inspect(|client| client.database.set_asleep(false));
    loop {
        let Some((waits, database)) = maintenance.round(&client).await else { return };
        let polls = waits && !database.notifies();
        // Timers stop while the machine is suspended: soon after that, check again what is due.
        let next = if waits { maintenance.next(polls) } else { LOOK };
        tokio::select! {
            () = runtime::sleep(next) => {}
            () = database.changed(), if polls => {}
            () = queued.notified() => maintenance.poll_soon(&client),
        }
    }
}

struct Maintenance {
    /// The time of this round; the next fields say when each step is due.
    now: Instant,
    sweep: Instant,
    refresh: Instant,
    settle: Instant,
    /// The name after which the next sweep begins.
    swept_to: String,
    poll_interval: PollInterval,
    /// How many claims wait ahead of the first waiting claim.
    ahead: u32,
    /// Whether the last poll failed: once the database answers again, core has to ask for the state of all claims.
    failed: bool,
    /// Slots are few: the client has closed its connections, and polls from time to time.
    asleep: bool,
}

impl Maintenance {
    fn new(now: Instant) -> Self {
        let (swept_to, poll_interval, sweep) =
            (String::new(), PollInterval::new(now), now.after(FIRST_SWEEP));
        Self {
            now,
            sweep,
            refresh: now,
            settle: now,
            swept_to,
            poll_interval,
            ahead: 0,
            failed: false,
            asleep: false,
        }
    }

    /// Does what is due; returns whether claims wait, and the database. `None` when the client is gone.
    async fn round(&mut self, client: &Weak<Client>) -> Option<(bool, Arc<dyn Database>)> {
        let client = client.upgrade()?;
        self.now = client.now();
        self.poll_interval.set_now(self.now);
        let waits = client.waits();
        if self.now >= if waits { self.sweep.after(SWEEP_WAITING) } else { self.sweep } {
            self.sweep = self.now.after(SWEEP);
            match client.sweep(&self.swept_to, SWEPT).await {
                Ok(last) => self.swept_to = last.unwrap_or_default(),
                Err(failed) => tracing::debug!(%failed, "expired claims and holds could not be ended"),
            }
        }
        client.database.close_unused(waits).await;
        if waits {
            let maintained = self.maintain(&client).await;
            if maintained.is_err() {
                client.check_in(LOOK);
            }
            (self.settle, self.ahead) = (client.next_check(), client.ahead());
            if let Err(failed) = &maintained {
                tracing::debug!(%failed, "waiting claims could not be maintained");
            }
            // Once more when the database answers again; and at once when it does not, so that callers that give up
            // meanwhile learn that.
            if maintained.is_err() != self.failed {
                client.mailbox.push(Notification::AskAll);
            }
            self.failed = maintained.is_err();
        }
        if waits && self.asleep && !client.holds() {
            client.database.close_idle().await;
        }
        Some((client.waits(), Arc::clone(&client.database)))
    }

    /// The maintenance of waiting claims.
    async fn maintain(&mut self, client: &Client) -> Result<(), Failed> {
        if !self.asleep && self.is_crowded(client) {
            self.set_asleep(client, true);
            return self.wake(client).await;
        }
        if self.asleep {
            return if self.now >= client.next_check() { self.wake(client).await } else { Ok(()) };
        }
        let looked = self.look(client).await;
        self.unless_full(client, looked)
    }

    /// The maintenance of waiting claims that are notified of their grants, or poll often.
    async fn look(&mut self, client: &Client) -> Result<(), Failed> {
        let database = &client.database;
        let look = match (database.notifies(), database.is_listening()) {
            (true, true) => SELDOM,
            (false, _) if client.ahead() as usize >= WATCHERS => LOOK_FAR,
            // A grant without a confirmation lasts for two seconds.
            _ => LOOK,
        };
        client.check_in(look);
        let checks = self.now >= client.next_check();
        if checks {
            client.check_started(look);
        }
        if database.notifies() {
            return if checks { client.refresh(false).await.map(drop) } else { Ok(()) };
        }
        if self.now >= self.refresh {
            self.refresh = self.now.after(client.refresh_interval());
            client.refresh(false).await?;
        } else if client.poll_grants().await? {
            self.poll_interval.note_change(self.now);
        }
        if checks {
            client.settle().await?;
        }
        Ok(())
    }

    /// Whether this client should close its connections because other clients need them more.
    fn is_crowded(&self, client: &Client) -> bool {
        let few = |slots: Slots| !slots.lets_stay(client.position(), self.asleep);
        !client.holds() && client.database.slots().is_some_and(few)
    }

    fn set_asleep(&mut self, client: &Client, asleep: bool) {
        tracing::debug!(asleep, "changed whether this client waits without a connection: the server has few");
        self.asleep = asleep;
        client.database.set_asleep(asleep);
    }

    /// The maintenance of waiting claims without notifications: polls on a connection made only for that, and sleeps
    /// on, unless enough slots are free by now.
    async fn wake(&mut self, client: &Client) -> Result<(), Failed> {
        let position = client.position();
        client.check_started(jittered(pause(position), client.jitter()));
        let refreshed = client.refresh(true).await;
        if matches!(&refreshed, Err(failed) if failed.fault == Fault::Full) {
            client.check_in(client.refresh_interval());
            return Ok(());
        }
        if refreshed? {
            // Core asks for the claim, and this client may hold the lock by now, so it stays connected.
            self.set_asleep(client, false);
            client.check_in(LOOK);
            return Ok(());
        }
        // Nearer to the head of the queue, the next poll comes sooner.
        client.check_in(jittered(pause(position.min(client.position())), client.jitter()));
        if !client.database.notifies() {
            client.settle().await?;
        }
        if self.is_crowded(client) {
            return Ok(());
        }
        self.set_asleep(client, false);
        self.refresh = self.now.after(client.refresh_interval());
        client.refresh(false).await.map(drop)
    }

    /// A server without a free slot is not unreachable: the claims keep waiting, and the client sleeps.
    fn unless_full(&mut self, client: &Client, looked: Result<(), Failed>) -> Result<(), Failed> {
        match looked {
            Err(failed) if failed.fault == Fault::Full && !client.holds() => {
                self.set_asleep(client, true);
                client.check_started(jittered(
                    pause(client.position()).min(client.refresh_interval()),
                    client.jitter(),
                ));
                Ok(())
            }
            looked => looked,
        }
    }

    /// The time until something is due.
    fn next(&self, polls: bool) -> Duration {
        let polls = polls && !self.asleep;
        let due = if polls { self.settle.min(self.refresh) } else { self.settle };
        due.since(self.now)
            .min(if polls { self.poll_interval.next(self.ahead) } else { LOOK })
            .max(Duration::from_millis(1))
    }

    fn poll_soon(&mut self, client: &Weak<Client>) {
        let Some(client) = client.upgrade() else { return };
        if client.was_queued() {
            let now = client.now();
            self.poll_interval.note_change(now);
            self.refresh = self.refresh.min(now.after(client.refresh_interval()));
            if self.asleep {
                // The poll tells the server for how long grants to the new claim must last.
                client.check_in(Duration::ZERO);
            }
        }
        if client.listener_was_lost() && !self.asleep {
            // The poll also opens the LISTEN connection again.
            client.check_in(Duration::ZERO);
        }
    }
}
