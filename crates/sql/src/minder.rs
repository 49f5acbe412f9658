//! What a client does by itself: lets the places of its claims in line live on, and looks whether they were granted, all of them in one
//! statement; and ends what is over in the tables and interests nobody else.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Instant, News, queue::WATCHERS};
use tokio::sync::Notify;

use crate::{
    client::Client,
    database::{Database, Failed},
    door,
    pace::Pace,
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
    loop {
        let Some((waits, database)) = minder.round(&client).await else { return };
        let looks = waits && !database.tells();
        // Timers stop while the machine is suspended: what is due is looked at again soon.
        let next = if waits { minder.next(looks) } else { LOOK };
        tokio::select! {
            () = door::sleep(next) => {}
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
    pace: Pace,
    /// How many wait before the first claim in line.
    ahead: u32,
    /// Whether the last look failed: what claims are by now is to be asked for, once that can be.
    failed: bool,
}

impl Minder {
    fn new(now: Instant) -> Self {
        let (swept_to, pace, sweep) = (String::new(), Pace::new(now), now.after(FIRST_SWEEP));
        Self { now, sweep, speak: now, settle: now, swept_to, pace, ahead: 0, failed: false }
    }

    /// Does what is due; says whether claims wait, and in what. Nothing when the client is gone.
    async fn round(&mut self, client: &Weak<Client>) -> Option<(bool, Arc<dyn Database>)> {
        let client = client.upgrade()?;
        self.now = client.now();
        self.pace.passed(self.now);
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
                client.mailbox.push(News::AskAll);
            }
            self.failed = minded.is_err();
        }
        Some((client.waits(), Arc::clone(&client.database)))
    }

    /// For the claims in line.
    async fn mind(&mut self, client: &Client) -> Result<(), Failed> {
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
            return if settles { client.speak().await } else { Ok(()) };
        }
        if self.now >= self.speak {
            self.speak = self.now.after(client.speaks_every());
            client.speak().await?;
        } else if client.listen().await? {
            self.pace.moved(self.now);
        }
        if settles {
            client.settle().await?;
        }
        Ok(())
    }

    /// How long nothing is due.
    fn next(&self, looks: bool) -> Duration {
        let due = if looks { self.settle.min(self.speak) } else { self.settle };
        due.since(self.now)
            .min(if looks { self.pace.next(self.ahead) } else { LOOK })
            .max(Duration::from_millis(1))
    }

    fn quicken(&mut self, client: &Weak<Client>) {
        let Some(client) = client.upgrade() else { return };
        if client.was_queued() {
            let now = client.now();
            self.pace.moved(now);
            self.speak = self.speak.min(now.after(client.speaks_every()));
        }
        if client.was_deaf() {
            // Which opens what it hears by, too.
            client.over_in(Duration::ZERO);
        }
    }
}
