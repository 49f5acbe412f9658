//! A run inside a run may wait for a program that waits for the outer run: a deadlock over processes. This module looks
//! for such a cycle while the run waits, and makes the run give up if nothing else ends the cycle.
//!
//! Only a run inside a run looks. Every cycle of runs contains such a run: an outermost run of one name holds nothing
//! while it waits, and the outermost runs of several names (`--and`) acquire them in one order, so they alone form no
//! cycle.

use std::{
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use leasehold::{Error, Locks, View};
use leasehold_ops::waits::{Finder, Finding, Look, Renewals};

use crate::{
    cmd::run::lock_label,
    event_loop::{EventLoop, now},
    exit::{self, Failure},
    nested::Hold,
    plan::{Run, Wait},
};

/// How long a run waits before it looks for the first time. Most waits are over then.
const FIRST_LOOK_AFTER: Duration = Duration::from_millis(200);
/// The time between two looks. A cycle counts if it is there in two looks one second apart.
const INTERVAL: Duration = Duration::from_millis(1100);
/// The time between two looks is at least this many times as long as a look takes, so that looks at very many names
/// cost the server little.
const LOOKS_COST_AT_MOST: u32 = 20;
/// For how long the other runs of a cycle wait for the run that is to give up. It may be a program that does not look,
/// or its machine may be busy.
const OTHERS_WAIT: Duration = Duration::from_secs(30);
/// Of how many outer holds the names are looked at. A cycle over further ones is not seen.
const MAX_OUTER_NAMES: usize = 16;

/// The future of one look: all names, or none if nobody waits for the outer holds.
type LookFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<View>, Error>> + 'a>>;

/// Looks from time to time whether the wait of this run closes a cycle.
pub(crate) struct CycleCheck<'a> {
    plan: &'a Run,
    locks: &'a Locks,
    finder: Finder,
    /// When the next look is due. `None`: no further look is wanted.
    next_look_at: Option<Duration>,
    /// The look that is in flight, and when it began.
    look: Option<(Duration, LookFuture<'a>)>,
    /// Whether the leases of the cycle of this run are renewed. A cycle with a lease that nobody renews, as that of a
    /// crashed host, ends by itself.
    renewals: Renewals,
    /// Since when this run is part of a lasting cycle that another run is to end.
    in_cycle_since: Option<Instant>,
}

impl<'a> CycleCheck<'a> {
    pub(crate) fn new(plan: &'a Run, locks: &'a Locks) -> Self {
        let is_wanted = plan.wait != Wait::Not
            && plan.actor.parent().is_some()
            && locks.profile().stores_claims
            && !Hold::of_outer_runs().is_empty();
        let next_look_at = is_wanted.then(|| now().saturating_add(FIRST_LOOK_AFTER));
        let (finder, renewals) = (Finder::new(), Renewals::new());
        Self { plan, locks, finder, next_look_at, look: None, renewals, in_cycle_since: None }
    }

    /// Looks if it is time. Returns the time until the next look is due. `None`: none is wanted, or the engine has not
    /// answered yet; its answer wakes `event_loop`.
    ///
    /// # Errors
    /// This run is part of a deadlock, and has to give up.
    pub(crate) fn check_when_due(&mut self, event_loop: &EventLoop) -> Result<Option<Duration>, Failure> {
        loop {
            if let Some((began, look)) = &mut self.look {
                let Poll::Ready(answer) = event_loop.poll(look.as_mut()) else { return Ok(None) };
                let took = now().saturating_sub(*began);
                self.look = None;
                self.next_look_at =
                    Some(now().saturating_add(INTERVAL.max(took.saturating_mul(LOOKS_COST_AT_MOST))));
                match answer {
                    Ok(views) => self.judge(&views, took)?,
                    // This user may not look at the locks of others.
                    Err(error) if error.is_denied() => self.next_look_at = None,
                    // The wait itself reports an outage.
                    Err(_) => {}
                }
            }
            let Some(next_look_at) = self.next_look_at else { return Ok(None) };
            let left = next_look_at.saturating_sub(now());
            if !left.is_zero() {
                return Ok(Some(left));
            }
            self.look = Some((now(), Box::pin(look(self.locks, self.plan.actor.id()))));
        }
    }

    /// Judges the answer of a look, which took this time and came now.
    fn judge(&mut self, views: &[View], took: Duration) -> Result<(), Failure> {
        let answered = Instant::now();
        let profile = self.locks.profile();
        let look = Look { engine: profile.engine, fifo: profile.fifo, views };
        let own = self.plan.actor.id();
        let findings = self.finder.next(&[look], answered);
        let deadlock = findings.into_iter().find_map(|finding| match finding {
            Finding::Deadlock(deadlock) if deadlock.contains(own) => Some(deadlock),
            _ => None,
        });
        let Some(deadlock) = deadlock else {
            (self.renewals, self.in_cycle_since) = (Renewals::new(), None);
            return Ok(());
        };
        let sent = answered.checked_sub(took).unwrap_or(answered);
        let Some(renewed) = self.renewals.next(&deadlock, sent, answered) else { return Ok(()) };
        let since = *self.in_cycle_since.get_or_insert(answered);
        // Each run of the cycle comes to the same answer.
        let is_last =
            deadlock.last_to_wait().and_then(|last| last.actor).is_some_and(|actor| actor.id() == own);
        // The run that is to give up may have crashed meanwhile. Its lease is not renewed then.
        if !is_last && renewed.saturating_duration_since(since) < OTHERS_WAIT {
            return Ok(());
        }
        let lock = lock_label(self.plan, self.locks);
        let message = format!(
            "{lock}: not acquired: {deadlock}: take the names in one order everywhere, or together by one run (--and)"
        );
        Err(Failure::new(exit::USAGE, message))
    }
}

/// The views of all names; of none if no task waits for a hold under which this run runs, because then this run is not
/// part of a cycle.
async fn look(locks: &Locks, own: u64) -> Result<Vec<View>, Error> {
    let outer = Hold::of_outer_runs();
    for hold in outer.iter().take(MAX_OUTER_NAMES) {
        // The name may be invalid, because a program has set the variable.
        let Ok(view) = locks.show(&hold.name).await else { continue };
        let is_here = view.holders.iter().any(|holder| holder.id == hold.claim);
        let mut others = view.waiters.iter().filter_map(|waiter| waiter.actor);
        if is_here && others.any(|actor| actor.id() != own) {
            return locks.list("").await;
        }
    }
    Ok(Vec::new())
}
