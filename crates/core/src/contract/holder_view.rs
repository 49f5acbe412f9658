//! A holder as seen from outside: who it is, until when it holds, and whether it is still at work. Pure.

use std::time::Duration;

use crate::{Actor, Mode};

/// The longest time between two renewals of a hold that is renewed in the background, as a fraction of its lease. By
/// default a hold is renewed when a third of the lease has passed, and at least every 20 s.
const LONGEST_INTERVAL: u32 = 2;

/// A holder as seen from outside.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HolderView {
    /// The claim id, or some other identifier of a foreign holder.
    pub id: String,
    /// The label of the holder; empty if it is not known.
    pub owner: String,
    /// The first token of the grant; `None` for a foreign holder.
    pub token: Option<u64>,
    /// How long it has held the name.
    pub held: Option<Duration>,
    /// For how long, at least, it has held the name: how long views that look again and again have seen it. `None` in
    /// the answer of an engine, and where the engine tells [`held`](Self::held).
    pub held_at_least: Option<Duration>,
    /// The time until it lapses, unless renewed; `None` where it does not lapse by itself.
    pub remaining: Option<Duration>,
    /// Whether the hold ends with a session that the holder keeps on the server; how long that session lasts cannot be
    /// known here.
    pub of_session: bool,
    /// Whether a program other than leasehold holds it.
    pub foreign: bool,
    /// Whether an operator broke the hold without force. The name is free when its holder releases it, and at the
    /// latest when `remaining` has passed: a broken hold is not renewed.
    pub broken: bool,
    /// The time to which each renewal extends the lease, where the engine stores that time.
    pub ttl: Option<Duration>,
    /// How long ago the lease was extended last, at least: by a renewal, or by the grant. `None` if that is not known.
    /// Most engines store only the end of a lease. Then this time is known only from the comparison of two looks.
    pub since_renewal: Option<Duration>,
    /// The process of the holder, where the engine tells it and the process can be seen from here.
    pub process: Option<HolderProcess>,
    /// The mode of this hold; `None` if this read did not see it.
    pub mode: Option<Mode>,
    /// The task that holds, if its label tells it.
    pub actor: Option<Actor>,
}

/// The process of a holder on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderProcess {
    /// Its pid, as this process sees it.
    pub pid: u32,
    /// Its state, the letter in `/proc/PID/stat`: `R` running, `S` sleeping, `D` in a wait that no signal interrupts,
    /// `T` stopped by a signal, `t` stopped by a debugger. `None` if it cannot be read.
    pub state: Option<char>,
}

impl HolderProcess {
    /// The process with this pid, in this state.
    #[must_use]
    pub const fn new(pid: u32, state: Option<char>) -> Self {
        Self { pid, state }
    }

    /// Whether the process does not run until somebody else lets it: it was stopped by a signal or a debugger, or is in
    /// a wait that no signal interrupts. The last is normal for moments, during disk input and output.
    #[must_use]
    pub const fn is_halted(&self) -> bool {
        matches!(self.state, Some('T' | 't' | 'D'))
    }
}

impl HolderView {
    /// A holder of leasehold with this id and this label, of which nothing else is known.
    #[must_use]
    pub fn new(id: String, owner: String) -> Self {
        Self { id, owner, ..Self::default() }
    }

    /// Sets the first token of the grant.
    #[must_use]
    pub const fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// Sets how long it has held the name, and the time until it lapses.
    #[must_use]
    pub const fn times(mut self, held: Option<Duration>, remaining: Option<Duration>) -> Self {
        (self.held, self.remaining) = (held, remaining);
        self
    }

    /// Sets the time to which each renewal extends the lease, and how long ago, at least, the last one was.
    #[must_use]
    pub const fn renewed(mut self, ttl: Option<Duration>, since_renewal: Option<Duration>) -> Self {
        (self.ttl, self.since_renewal) = (ttl, since_renewal);
        self
    }

    /// The same hold, as one that ends with a session of its holder.
    #[must_use]
    pub const fn of_session(mut self) -> Self {
        self.of_session = true;
        self
    }

    /// The same hold, as one of this program: whether that is a program other than leasehold.
    #[must_use]
    pub const fn foreign(mut self, foreign: bool) -> Self {
        self.foreign = foreign;
        self
    }

    /// Sets whether an operator broke the hold.
    #[must_use]
    pub const fn broken(mut self, broken: bool) -> Self {
        self.broken = broken;
        self
    }

    /// Sets the process of the holder.
    #[must_use]
    pub const fn process(mut self, process: Option<HolderProcess>) -> Self {
        self.process = process;
        self
    }

    /// By how much, at least, a renewal is overdue: for how much longer than half of its lease the hold was not
    /// extended. `None` if that is not known or not so, for a broken hold, and for one of another program.
    ///
    /// A holder that renews in the background does so at each third of the lease or earlier, or at each time that it
    /// chose, which is at most half of the lease. An overdue one hangs, is stopped or is cut off. But a hold can also
    /// be one that nobody renews in the background: a hold acquired with [`renew(false)`](crate::Request::renew), a
    /// hold that was left for its handle, or one that was extended beyond its ttl on purpose.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use leasehold_core::HolderView;
    ///
    /// let seconds = |seconds| Some(Duration::from_secs(seconds));
    /// let holder = HolderView::new("id".into(), "me@host:7".into()).times(None, seconds(12));
    /// assert_eq!(holder.overdue(), None, "it is not known when it was renewed");
    /// assert_eq!(holder.clone().renewed(None, seconds(10)).overdue(), None);
    /// assert_eq!(holder.renewed(None, seconds(18)).overdue(), seconds(3), "15 s are half of 30 s");
    /// ```
    #[must_use]
    pub fn overdue(&self) -> Option<Duration> {
        if self.broken || self.foreign {
            return None;
        }
        let (since, remaining) = (self.since_renewal?, self.remaining?);
        let lease = self.ttl.unwrap_or_else(|| since.saturating_add(remaining));
        since.checked_sub(lease / LONGEST_INTERVAL).filter(|late| !late.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn a_renewal_is_overdue_after_half_of_the_lease() {
        let holder = |remaining, since| {
            HolderView::new("i".into(), "o".into()).times(None, remaining).renewed(None, since)
        };
        for (remaining, since, overdue) in [
            (seconds(20), seconds(10), None),
            (seconds(15), seconds(15), None),
            (seconds(14), seconds(16), seconds(1)),
            (seconds(0), seconds(30), seconds(15)),
            (None, seconds(30), None),
            (seconds(14), None, None),
        ] {
            assert_eq!(holder(remaining, since).overdue(), overdue, "{remaining:?} {since:?}");
        }
        let late = holder(seconds(10), seconds(20));
        assert_eq!(late.clone().renewed(seconds(60), seconds(20)).overdue(), None, "the ttl is known");
        assert_eq!(late.clone().broken(true).overdue(), None, "a broken hold is not renewed");
        assert_eq!(late.foreign(true).overdue(), None, "other programs may not renew at all");
    }

    #[test]
    fn a_halted_process_is_known_by_its_letter() {
        let halted = |state| HolderProcess::new(7, state).is_halted();
        assert_eq!(['T', 't', 'D'].map(|state| halted(Some(state))), [true; 3]);
        assert_eq!([Some('S'), Some('R'), Some('Z'), None].map(halted), [false; 4]);
    }
}
