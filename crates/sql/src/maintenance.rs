//! The maintenance task of a client: extends the queue entries of its waiting claims and polls for their grants; one
//! statement serves all waiting claims. It also ends claims and holds of any client that have expired and that no other
//! client has ended.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Fault, Instant, Notification, lock_state::WATCHERS};
use tokio::sync::Notify;

use crate::{
    client::Client,
    connection_slots::{ConnectionSlots, jittered, sleep_interval},
    database::{Database, Failed},
    poll_interval::PollInterval,
    runtime,
};

/// How often a client checks whether the holds ahead of its claims have ended. If the client knows that such a hold
/// ends before the next check, it checks at the end of the hold instead.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a client checks for the ends of the holds ahead while many claims are ahead of its claims.
const FAR_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// How often a client with notifications extends its queue entries, and looks for holds that have expired because their
/// client died, which no notification reports.
const LISTENING_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How often a part of the tables is swept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);
/// When a client sweeps for the first time: soon, because many clients live for seconds only.
const FIRST_SWEEP_DELAY: Duration = Duration::from_secs(3);
/// By how much a client postpones its sweep while its claims wait: other clients, which hold the locks, sweep as well.
const WAITING_SWEEP_DELAY: Duration = Duration::from_secs(600);
/// The same for the sweep of memos. A client whose claims always wait may be the only one.
const WAITING_MEMO_SWEEP_DELAY: Duration = Duration::from_secs(100);
/// How many names one sweep examines.
const MAX_SWEPT: i64 = 1000;

/// Runs the maintenance until the client is dropped. `maintenance_wake` wakes it.
pub(crate) async fn run(client: Weak<Client>, maintenance_wake: Arc<Notify>) {
    let Some(now) = client.upgrade().map(|client| client.now()) else { return };
    let mut maintenance = Maintenance::new(now);
    // An earlier run of this task may have failed while the client was asleep.
    client.upgrade().inspect(|client| client.database.set_asleep(false));
    loop {
        let Some((claims_wait, database)) = maintenance.run_due_steps(&client).await else { return };
        let polls = claims_wait && !database.notifies();
        // Timers stop while the machine is suspended. So every delay is short: soon after a suspension the task checks
        // again what is due.
        let delay = if claims_wait { maintenance.next_delay(polls) } else { CHECK_INTERVAL };
        tokio::select! {
            () = runtime::sleep(delay) => {}
            () = database.changed(), if polls => {}
            () = maintenance_wake.notified() => maintenance.poll_soon(&client),
        }
    }
}

/// The state of the maintenance task of one client.
struct Maintenance {
    /// The time of this round.
    now: Instant,
    /// When a part of the tables is swept next.
    sweep_due: Instant,
    /// When ended memos are deleted next.
    memo_sweep_due: Instant,
    /// When the queue entries are extended next.
    refresh_due: Instant,
    /// When the holds ahead of the waiting claims are checked next.
    check_due: Instant,
    /// The name after which the next sweep begins.
    last_swept_name: String,
    poll_interval: PollInterval,
    /// See [`Client::delaying_claims`].
    delaying_claims: u32,
    /// Whether the last round of maintenance failed. After the first round that succeeds again, core has to ask for the
    /// states of all claims.
    failed: bool,
    /// Whether the client has closed its connections, because connection slots are few, and polls from time to time.
    asleep: bool,
}

impl Maintenance {
    fn new(now: Instant) -> Self {
        let (last_swept_name, poll_interval, sweep_due) =
            (String::new(), PollInterval::new(now), now.after(FIRST_SWEEP_DELAY));
        Self {
            now,
            sweep_due,
            memo_sweep_due: sweep_due,
            refresh_due: now,
            check_due: now,
            last_swept_name,
            poll_interval,
            delaying_claims: 0,
            failed: false,
            asleep: false,
        }
    }

    /// Does what is due; returns whether claims wait, and the database. `None` after the client was dropped.
    async fn run_due_steps(&mut self, client: &Weak<Client>) -> Option<(bool, Arc<dyn Database>)> {
        let client = client.upgrade()?;
        self.now = client.now();
        self.poll_interval.set_now(self.now);
        let claims_wait = client.has_waiting_claims();
        self.sweep(&client, claims_wait).await;
        client.database.release_unneeded(claims_wait).await;
        if claims_wait {
            let maintenance_result = self.maintain(&client).await;
            if maintenance_result.is_err() {
                client.schedule_check(CHECK_INTERVAL);
            }
            (self.check_due, self.delaying_claims) = (client.next_check(), client.delaying_claims());
            if let Err(failed) = &maintenance_result {
                tracing::debug!(%failed, "waiting claims could not be maintained");
            }
            // Core asks for the states of all claims when the database answers again. Core also asks when the database
            // stops answering: these requests fail, so callers that give up meanwhile get the error of the database.
            if maintenance_result.is_err() != self.failed {
                client.mailbox.push(Notification::AskAll);
            }
            self.failed = maintenance_result.is_err();
        }
        if claims_wait && self.asleep && !client.holds() {
            client.database.close_idle_connections().await;
        }
        Some((client.has_waiting_claims(), Arc::clone(&client.database)))
    }

    /// Sweeps the tables if that is due.
    async fn sweep(&mut self, client: &Client, claims_wait: bool) {
        let is_due = |due: Instant, delay| self.now >= if claims_wait { due.after(delay) } else { due };
        // A sleeping client has no connection.
        let sweeps_memos = is_due(self.memo_sweep_due, WAITING_MEMO_SWEEP_DELAY) && !self.asleep;
        if is_due(self.sweep_due, WAITING_SWEEP_DELAY) {
            self.sweep_due = self.now.after(SWEEP_INTERVAL);
            match client.sweep(&self.last_swept_name, MAX_SWEPT).await {
                Ok(last) => self.last_swept_name = last.unwrap_or_default(),
                Err(failed) => tracing::debug!(%failed, "expired claims and holds could not be ended"),
            }
        }
        if sweeps_memos {
            self.memo_sweep_due = self.now.after(SWEEP_INTERVAL);
            // A user without the right to the table of memos has no memos to sweep.
            if let Err(failed) = client.sweep_memos().await {
                tracing::debug!(%failed, "ended memos could not be deleted");
            }
        }
    }

    /// Maintains the waiting claims of an awake or sleeping client.
    async fn maintain(&mut self, client: &Client) -> Result<(), Failed> {
        if !self.asleep && self.is_crowded(client) {
            self.set_asleep(client, true);
            return self.poll_asleep(client).await;
        }
        if self.asleep {
            return if self.now >= client.next_check() { self.poll_asleep(client).await } else { Ok(()) };
        }
        let check_result = self.check(client).await;
        self.sleep_if_full(client, check_result)
    }

    /// Maintains the waiting claims of a client that is awake: it is notified of grants, or polls often.
    async fn check(&mut self, client: &Client) -> Result<(), Failed> {
        let database = &client.database;
        let interval = match (database.notifies(), database.is_listening()) {
            (true, true) => LISTENING_CHECK_INTERVAL,
            (false, _) if client.delaying_claims() as usize >= WATCHERS => FAR_CHECK_INTERVAL,
            // A grant lasts for two seconds without a confirmation, so polls have to come sooner than that.
            _ => CHECK_INTERVAL,
        };
        client.schedule_check(interval);
        let is_due = self.now >= client.next_check();
        if is_due {
            client.note_check_started(interval);
        }
        if database.notifies() {
            return if is_due { client.refresh(false).await.map(drop) } else { Ok(()) };
        }
        if self.now >= self.refresh_due {
            self.refresh_due = self.now.after(client.refresh_interval());
            client.refresh(false).await?;
        } else if client.poll_grants().await? {
            self.poll_interval.note_change(self.now);
        }
        if is_due {
            client.settle().await?;
        }
        Ok(())
    }

    /// Whether this client should close its connections because other clients need them more.
    fn is_crowded(&self, client: &Client) -> bool {
        let must_close = |slots: ConnectionSlots| !slots.may_keep_connection(client.position(), self.asleep);
        !client.holds() && client.database.connection_slots().is_some_and(must_close)
    }

    /// Puts the client to sleep, without connections, or wakes it.
    fn set_asleep(&mut self, client: &Client, asleep: bool) {
        tracing::debug!(asleep, "changed whether this client waits without a connection: the server has few");
        self.asleep = asleep;
        client.database.set_asleep(asleep);
    }

    /// Maintains the waiting claims of a sleeping client: polls once, on a connection made only for this poll, and
    /// wakes the client if a claim does not wait any more or enough slots are free by now. Otherwise the client stays
    /// asleep.
    async fn poll_asleep(&mut self, client: &Client) -> Result<(), Failed> {
        let position = client.position();
        client.note_check_started(jittered(sleep_interval(position), client.random_number()));
        let needs_recheck = client.refresh(true).await;
        if matches!(&needs_recheck, Err(failed) if failed.fault == Fault::Full) {
            client.schedule_check(client.refresh_interval());
            return Ok(());
        }
        if needs_recheck? {
            // Core asks for the claim, and this client may hold the lock by now, so it stays connected.
            self.set_asleep(client, false);
            client.schedule_check(CHECK_INTERVAL);
            return Ok(());
        }
        // If the position is now nearer to the head of the queue, the next poll comes sooner.
        client.schedule_check(jittered(
            sleep_interval(position.min(client.position())),
            client.random_number(),
        ));
        if !client.database.notifies() {
            client.settle().await?;
        }
        if self.is_crowded(client) {
            return Ok(());
        }
        self.set_asleep(client, false);
        self.refresh_due = self.now.after(client.refresh_interval());
        client.refresh(false).await.map(drop)
    }

    /// Returns `check_result`, unless the check failed because the server had no free connection slot and the client
    /// holds nothing: then puts the client to sleep and returns `Ok`, so that its claims keep waiting.
    fn sleep_if_full(&mut self, client: &Client, check_result: Result<(), Failed>) -> Result<(), Failed> {
        match check_result {
            Err(failed) if failed.fault == Fault::Full && !client.holds() => {
                self.set_asleep(client, true);
                client.note_check_started(jittered(
                    sleep_interval(client.position()).min(client.refresh_interval()),
                    client.random_number(),
                ));
                Ok(())
            }
            check_result => check_result,
        }
    }

    /// The time until the next step is due.
    fn next_delay(&self, polls: bool) -> Duration {
        let polls = polls && !self.asleep;
        let next_due = if polls { self.check_due.min(self.refresh_due) } else { self.check_due };
        next_due
            .since(self.now)
            .min(if polls { self.poll_interval.next_interval(self.delaying_claims) } else { CHECK_INTERVAL })
            .max(Duration::from_millis(1))
    }

    /// Makes the next poll come sooner, after a claim entered the queue or the LISTEN connection was lost.
    fn poll_soon(&mut self, client: &Weak<Client>) {
        let Some(client) = client.upgrade() else { return };
        if client.was_queued() {
            let now = client.now();
            self.poll_interval.note_change(now);
            self.refresh_due = self.refresh_due.min(now.after(client.refresh_interval()));
            if self.asleep {
                // The poll tells the server for how long a grant to the new claim must last without a confirmation.
                client.schedule_check(Duration::ZERO);
            }
        }
        if client.was_listener_lost() && !self.asleep {
            // The poll also opens the LISTEN connection again.
            client.schedule_check(Duration::ZERO);
        }
    }
}
