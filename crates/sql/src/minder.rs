//! What a client does by itself: lets the places of its claims in line live on, and looks whether they were granted, all of them in one
//! statement; and ends what is over in the tables and interests nobody else.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Instant, News};
use tokio::sync::Notify;

use crate::{
    client::Client,
    database::{Database, Failed},
    door,
    pace::Pace,
};

/// How often places are kept: they last ten seconds at least. Where grants are heard of, this is the net, too.
const KEEP: Duration = Duration::from_secs(3);
/// How often it is looked when the holds before them are over; sooner if that is known.
const LOOK: Duration = Duration::from_secs(1);
/// How often a part of the tables is swept; the first one sooner, for many clients live for seconds only.
const SWEEP: Duration = Duration::from_secs(20);
const FIRST_SWEEP: Duration = Duration::from_secs(3);
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
    keep: Instant,
    settle: Instant,
    /// Where to sweep from.
    swept_to: String,
    pace: Pace,
    /// Whether the last look failed: what claims are by now is to be asked for, once that can be.
    deaf: bool,
}

impl Minder {
    fn new(now: Instant) -> Self {
        let (swept_to, pace) = (String::new(), Pace::new(now));
        Self { now, sweep: now.after(FIRST_SWEEP), keep: now, settle: now, swept_to, pace, deaf: false }
    }

    /// Does what is due; says whether claims wait, and in what. Nothing when the client is gone.
    async fn round(&mut self, client: &Weak<Client>) -> Option<(bool, Arc<dyn Database>)> {
        let client = client.upgrade()?;
        self.now = client.now();
        self.pace.passed(self.now);
        if self.now >= self.sweep {
            self.sweep = self.now.after(SWEEP);
            match client.sweep(&self.swept_to, SWEPT).await {
                Ok(last) => self.swept_to = last.unwrap_or_default(),
                Err(failed) => tracing::debug!(%failed, "what is over could not be ended"),
            }
        }
        if !client.waits() {
            client.database.rest();
        } else {
            let minded = self.mind(&client).await;
            self.settle = client.over();
            if let Err(failed) = &minded {
                tracing::debug!(%failed, "claims in line could not be minded");
            }
            // Once more when it can be asked again; and at once when it cannot: who gives up meanwhile is to know that.
            if minded.is_err() != self.deaf {
                client.mailbox.push(News::AskAll);
            }
            self.deaf = minded.is_err();
        }
        Some((client.waits(), Arc::clone(&client.database)))
    }

    /// For the claims in line.
    async fn mind(&mut self, client: &Client) -> Result<(), Failed> {
        // What fails is due again after its time, not at once.
        let due = |at: &mut Instant, time| {
            let due = self.now >= *at;
            *at = if due { self.now.after(time) } else { *at };
            due
        };
        // A grant that nobody heard of lasts for two seconds.
        let keep = if client.database.hears() { KEEP } else { LOOK };
        let keeps = due(&mut self.keep, keep);
        client.over_in(LOOK);
        let settles = self.now >= client.over();
        if keeps {
            client.speak().await?;
        } else if !client.database.tells() && client.listen().await? {
            self.pace.moved(self.now);
        }
        if settles {
            client.looks(LOOK);
            if let Some(left) = client.settle().await? {
                client.over_in(left);
            }
        }
        Ok(())
    }

    /// How long nothing is due.
    fn next(&self, looks: bool) -> Duration {
        let due = self.keep.min(self.settle).min(self.sweep).since(self.now);
        due.min(if looks { self.pace.next() } else { LOOK }).max(Duration::from_millis(1))
    }

    fn quicken(&mut self, client: &Weak<Client>) {
        let Some(client) = client.upgrade() else { return };
        if client.was_queued() {
            self.pace.moved(client.now());
        }
        if client.was_deaf() {
            // Which opens what it hears by, too.
            client.over_in(Duration::ZERO);
        }
    }
}
