//! What a client does by itself: lets the places of its claims in line live on, and looks whether they were granted, all of them in one
//! statement; and ends what is over in the tables and interests nobody else.

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

/// How often one looks whether the holds before them are over; sooner if that is known.
const LOOK: Duration = Duration::from_secs(1);
/// The same of who has many before it.
const LOOK_FAR: Duration = Duration::from_secs(3);
/// How often who hears of its grants speaks for its places, and looks at what it does not hear of: that somebody died.
const SELDOM: Duration = Duration::from_secs(30);
/// How often a part of the tables is swept; the first one sooner, for many clients live for seconds only.
const SWEEP: Duration = Duration::from_secs(20);
const FIRST_SWEEP: Duration = Duration::from_secs(3);
/// How much longer it can wait while claims do: who holds sweeps, too.
const SWEEP_WAITING: Duration = Duration::from_secs(600);
/// How many names are looked at in one sweep.
const SWEPT: i64 = 1000;

/// Ends when the client is gone.
pub(crate) async fn run(client: Weak<Client>, queued: Arc<Notify>) {
    let Some(now) = client.upgrade().map(|client| client.now()) else { return };
    let mut minder = Minder::new(now);
    // One before this one may have ended while it slept.
    client.upgrade().inspect(|client| client.database.doze(false));
    loop {
        let Some((waits, database)) = minder.round(&client).await else { return };
        let looks = waits && !database.tells();
        // Timers stop while the machine is suspended: what is due is looked at again soon.
        let next = if waits { minder.next(looks) } else { LOOK };
        tokio::select! {
            () = runtime::sleep(next) => {}
            () = database.changed(), if looks => {}
            () = queued.notified() => minder.quicken(&client),
        }
    }
}

struct Minder {
    /// What is due when.
    now: Instant,
    sweep: Instant,
    speak: Instant,
    settle: Instant,
    /// Where to sweep from.
    swept_to: String,
    poll_interval: PollInterval,
    /// How many wait before the first claim in line.
    ahead: u32,
    /// Whether the last look failed: what claims are by now is to be asked for, once that can be.
    failed: bool,
    /// Connections are few: it has closed its own, and looks from time to time.
    asleep: bool,
}

impl Minder {
    fn new(now: Instant) -> Self {
        let (swept_to, poll_interval, sweep) =
            (String::new(), PollInterval::new(now), now.after(FIRST_SWEEP));
        Self {
            now,
            sweep,
            speak: now,
            settle: now,
            swept_to,
            poll_interval,
            ahead: 0,
            failed: false,
            asleep: false,
        }
    }

    /// Does what is due; says whether claims wait, and in what. Nothing when the client is gone.
    async fn round(&mut self, client: &Weak<Client>) -> Option<(bool, Arc<dyn Database>)> {
        let client = client.upgrade()?;
        self.now = client.now();
        self.poll_interval.passed(self.now);
        let waits = client.waits();
        if self.now >= if waits { self.sweep.after(SWEEP_WAITING) } else { self.sweep } {
            self.sweep = self.now.after(SWEEP);
            match client.sweep(&self.swept_to, SWEPT).await {
                Ok(last) => self.swept_to = last.unwrap_or_default(),
                Err(failed) => tracing::debug!(%failed, "what is over could not be ended"),
            }
        }
        client.database.rest(waits).await;
        if waits {
            let minded = self.mind(&client).await;
            if minded.is_err() {
                client.over_in(LOOK);
            }
            (self.settle, self.ahead) = (client.over(), client.ahead());
            if let Err(failed) = &minded {
                tracing::debug!(%failed, "claims in line could not be minded");
            }
            // Once more when it can be asked again; and at once when it cannot: who gives up meanwhile is to know that.
            if minded.is_err() != self.failed {
                client.mailbox.push(Notification::AskAll);
            }
            self.failed = minded.is_err();
        }
        if waits && self.asleep && !client.holds() {
            client.database.let_go().await;
        }
        Some((client.waits(), Arc::clone(&client.database)))
    }

    /// For the claims in line.
    async fn mind(&mut self, client: &Client) -> Result<(), Failed> {
        if !self.asleep && self.is_crowded(client) {
            self.dozes(client, true);
            return self.wake(client).await;
        }
        if self.asleep {
            return if self.now >= client.over() { self.wake(client).await } else { Ok(()) };
        }
        let looked = self.look(client).await;
        self.unless_full(client, looked)
    }

    /// For claims in line that are told of their grants, or look for them often.
    async fn look(&mut self, client: &Client) -> Result<(), Failed> {
        let database = &client.database;
        let look = match (database.tells(), database.hears()) {
            (true, true) => SELDOM,
            (false, _) if client.ahead() as usize >= WATCHERS => LOOK_FAR,
            // A grant that nobody heard of lasts for two seconds.
            _ => LOOK,
        };
        client.over_in(look);
        let settles = self.now >= client.over();
        if settles {
            client.looks(look);
        }
        if database.tells() {
            return if settles { client.speak(false).await.map(drop) } else { Ok(()) };
        }
        if self.now >= self.speak {
            self.speak = self.now.after(client.speaks_every());
            client.speak(false).await?;
        } else if client.listen().await? {
            self.poll_interval.moved(self.now);
        }
        if settles {
            client.settle().await?;
        }
        Ok(())
    }

    /// Whether this client is to close its connection, which others need more.
    fn is_crowded(&self, client: &Client) -> bool {
        let few = |slots: Slots| !slots.lets_stay(client.turn(), self.asleep);
        !client.holds() && client.database.slots().is_some_and(few)
    }

    fn dozes(&mut self, client: &Client, asleep: bool) {
        tracing::debug!(asleep, "whether it waits without a connection, for the server has few left");
        self.asleep = asleep;
        client.database.doze(asleep);
    }

    /// For claims in line that are told nothing: looks on a connection for that alone, and sleeps on, unless there is room by now.
    async fn wake(&mut self, client: &Client) -> Result<(), Failed> {
        let turn = client.turn();
        client.looks(jittered(pause(turn), client.jitter()));
        let spoken = client.speak(true).await;
        if matches!(&spoken, Err(failed) if failed.fault == Fault::Full) {
            client.over_in(client.speaks_every());
            return Ok(());
        }
        if spoken? {
            // It is asked for, and may be a hold of this client's by now: then it keeps the connection that it has for that.
            self.dozes(client, false);
            client.over_in(LOOK);
            return Ok(());
        }
        // It comes nearer: the sooner it looks again.
        client.over_in(jittered(pause(turn.min(client.turn())), client.jitter()));
        if !client.database.tells() {
            client.settle().await?;
        }
        if self.is_crowded(client) {
            return Ok(());
        }
        self.dozes(client, false);
        self.speak = self.now.after(client.speaks_every());
        client.speak(false).await.map(drop)
    }

    /// A server that takes no more connections is none that cannot be asked: claims in line wait on, and sleep.
    fn unless_full(&mut self, client: &Client, looked: Result<(), Failed>) -> Result<(), Failed> {
        match looked {
            Err(failed) if failed.fault == Fault::Full && !client.holds() => {
                self.dozes(client, true);
                client.looks(jittered(pause(client.turn()).min(client.speaks_every()), client.jitter()));
                Ok(())
            }
            looked => looked,
        }
    }

    /// How long nothing is due.
    fn next(&self, looks: bool) -> Duration {
        let looks = looks && !self.asleep;
        let due = if looks { self.settle.min(self.speak) } else { self.settle };
        due.since(self.now)
            .min(if looks { self.poll_interval.next(self.ahead) } else { LOOK })
            .max(Duration::from_millis(1))
    }

    fn quicken(&mut self, client: &Weak<Client>) {
        let Some(client) = client.upgrade() else { return };
        if client.was_queued() {
            let now = client.now();
            self.poll_interval.moved(now);
            self.speak = self.speak.min(now.after(client.speaks_every()));
            if self.asleep {
                // What is granted to it is kept for it from then on.
                client.over_in(Duration::ZERO);
            }
        }
        if client.was_deaf() && !self.asleep {
            // Which opens what it hears by, too.
            client.over_in(Duration::ZERO);
        }
    }
}
