//! Decides when CMD is terminated (TERM) and killed (KILL), so that CMD never works without the lock.
//!
//! The module is pure: the time, the guard's limits and a loss are arguments. Times count from the boot of the machine.

use std::time::Duration;

use leasehold::{Loss, Stop};

/// The longest time between two checks of a deadline. Timers stop while the machine is suspended, but deadlines do not.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// What the caller has to do with CMD's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send TERM.
    Terminate,
    /// Send KILL.
    Kill,
}

/// The state machine for one hold.
#[derive(Debug)]
pub(crate) struct Enforcer {
    grace: Duration,
    /// When CMD gets TERM and KILL, as computed last while the hold was valid. `None`: the hold has no time at which it
    /// ends.
    limits: Option<Limits>,
    stage: Stage,
}

/// The times at which CMD gets TERM and KILL, counted from the boot of the machine.
#[derive(Clone, Copy, Debug)]
struct Limits {
    term_at: Duration,
    kill_at: Duration,
}

/// Which signals CMD was sent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// CMD runs under the lock.
    Held,
    /// CMD was sent TERM because of this loss.
    Terminated { kill_at: Duration, loss: Loss },
    /// CMD was sent KILL because of this loss.
    Killed { loss: Loss },
}

impl Enforcer {
    pub(crate) const fn new(grace: Duration) -> Self {
        Self { grace, limits: None, stage: Stage::Held }
    }

    /// The action that is due now, if any. `stop` says when CMD has to be stopped, as the guard computes it; it is
    /// `None` if the hold has no time at which it ends. `loss` is the loss that the guard has reported, if any.
    pub(crate) fn step(&mut self, now: Duration, stop: Option<Stop>, loss: Option<Loss>) -> Option<Action> {
        match self.stage {
            Stage::Held => {
                if let Some(loss) = loss {
                    return Some(self.handle_loss(now, loss));
                }
                let Some(stop) = stop else {
                    self.limits = None;
                    return None;
                };
                let limits =
                    Limits { term_at: now.saturating_add(stop.term), kill_at: now.saturating_add(stop.kill) };
                self.limits = Some(limits);
                (limits.term_at <= now).then(|| self.terminate_or_kill(now, limits.kill_at, stop.loss))
            }
            Stage::Terminated { kill_at, loss } if now >= kill_at => {
                self.stage = Stage::Killed { loss };
                Some(Action::Kill)
            }
            Stage::Terminated { .. } | Stage::Killed { .. } => None,
        }
    }

    /// The time until the next action is due, at most [`MAX_SLEEP`]. `None`: no action will become due by the time
    /// alone.
    pub(crate) fn time_to_next_action(&self, now: Duration) -> Option<Duration> {
        let time_until = |at: Duration| at.saturating_sub(now).min(MAX_SLEEP);
        match self.stage {
            Stage::Held => self.limits.map(|limits| time_until(limits.term_at)),
            Stage::Terminated { kill_at, .. } => Some(time_until(kill_at)),
            Stage::Killed { .. } => None,
        }
    }

    /// The loss because of which CMD was sent TERM or KILL. `None`: CMD runs under the lock.
    pub(crate) fn stopped_by(&self) -> Option<Loss> {
        match self.stage {
            Stage::Held => None,
            Stage::Terminated { loss, .. } | Stage::Killed { loss } => Some(loss),
        }
    }

    /// When KILL is due, after TERM was sent. `None`: KILL was sent already, or TERM was not sent yet.
    pub(crate) fn kill_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Terminated { kill_at, .. } => Some(kill_at),
            Stage::Held | Stage::Killed { .. } => None,
        }
    }

    /// Handles a reported loss. After a lapse the name may be granted to another claim at any time, so CMD gets no
    /// grace. After any other loss, no other claim is granted the name before the deadline of the hold, so CMD gets its
    /// grace, but at most until that deadline.
    fn handle_loss(&mut self, now: Duration, loss: Loss) -> Action {
        let grace_end = now.saturating_add(self.grace);
        let kill_at = match (loss, self.limits) {
            (Loss::Lapsed, _) => now,
            (_, Some(limits)) => grace_end.min(limits.kill_at),
            (_, None) => grace_end,
        };
        self.terminate_or_kill(now, kill_at, loss)
    }

    /// Enters the next stage: TERM now and KILL at `kill_at`; or, if `kill_at` has come already, KILL now.
    fn terminate_or_kill(&mut self, now: Duration, kill_at: Duration, loss: Loss) -> Action {
        if now >= kill_at {
            self.stage = Stage::Killed { loss };
            return Action::Kill;
        }
        self.stage = Stage::Terminated { kill_at, loss };
        Action::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// The limits that a guard reports when its hold ends in `left` seconds and 50 ms, for a lease of 30 s and a grace
    /// of 5 s.
    fn left(left: u64) -> Option<Stop> {
        Some(Stop::new(secs(left) + Duration::from_millis(50), secs(30), secs(5), Loss::Lapsed))
    }

    /// The limits that a guard reports when its hold has ended.
    fn over() -> Option<Stop> {
        Some(Stop::new(Duration::ZERO, secs(30), secs(5), Loss::Lapsed))
    }

    #[test]
    fn cmd_gets_term_before_the_deadline_and_kill_at_it() {
        let mut enforcer = Enforcer::new(secs(5));
        assert_eq!(enforcer.step(secs(100), left(30), None), None);
        assert_eq!(enforcer.time_to_next_action(secs(100)), Some(secs(1)), "it checks again every second");
        assert_eq!(enforcer.step(secs(124), left(6), None), None);
        assert_eq!(enforcer.stopped_by(), None);
        assert_eq!(enforcer.step(secs(125), left(5), None), Some(Action::Terminate));
        assert_eq!(enforcer.step(secs(126), left(4), None), None, "TERM is sent once");
        assert_eq!(enforcer.stopped_by(), Some(Loss::Lapsed));
        assert_eq!(enforcer.step(secs(129), left(30), None), None);
        assert_eq!(
            enforcer.step(secs(130), left(29), None),
            Some(Action::Kill),
            "a late renewal changes nothing"
        );
        assert_eq!(enforcer.time_to_next_action(secs(130)), None);
    }

    #[test]
    fn a_loss_leaves_the_grace_up_to_the_deadline() {
        for (time, kill) in [(20, 105), (7, 105)] {
            let mut enforcer = Enforcer::new(secs(5));
            enforcer.step(secs(100), left(time), None);
            assert_eq!(enforcer.step(secs(100), over(), Some(Loss::Gone)), Some(Action::Terminate));
            assert_eq!(enforcer.kill_at(), Some(secs(kill)));
        }
        let mut enforcer = Enforcer::new(secs(5));
        enforcer.step(secs(100), left(6), None);
        assert_eq!(enforcer.step(secs(103), over(), Some(Loss::Broken)), Some(Action::Terminate));
        assert_eq!(enforcer.kill_at(), Some(secs(106)), "not a second past the old deadline");
        assert_eq!(enforcer.step(secs(106), over(), Some(Loss::Broken)), Some(Action::Kill));
        assert_eq!(enforcer.stopped_by(), Some(Loss::Broken));
    }

    #[test]
    fn a_lapsed_lease_kills_cmd_at_once() {
        let mut enforcer = Enforcer::new(secs(5));
        enforcer.step(secs(100), left(30), None);
        // The machine was suspended until after the deadline.
        assert_eq!(enforcer.step(secs(500), over(), Some(Loss::Lapsed)), Some(Action::Kill));
        let mut enforcer = Enforcer::new(secs(5));
        assert_eq!(enforcer.step(secs(500), over(), None), Some(Action::Kill));
    }

    #[test]
    fn a_hold_without_a_deadline_gets_the_full_grace() {
        let mut enforcer = Enforcer::new(secs(5));
        assert_eq!(enforcer.step(secs(100), None, None), None);
        assert_eq!(enforcer.time_to_next_action(secs(100)), None);
        assert_eq!(enforcer.step(secs(101), None, Some(Loss::Replaced)), Some(Action::Terminate));
        assert_eq!(enforcer.time_to_next_action(secs(101)), Some(secs(1)));
        assert_eq!(enforcer.step(secs(105), None, Some(Loss::Replaced)), None);
        assert_eq!(enforcer.step(secs(106), None, Some(Loss::Replaced)), Some(Action::Kill));
    }

    #[test]
    fn cmd_gets_term_before_max_hold_ends() {
        let mut enforcer = Enforcer::new(secs(5));
        let stop = |left| Some(Stop::new(left, secs(9), secs(5), Loss::MaxHold));
        assert_eq!(enforcer.step(secs(100), stop(secs(9)), None), None);
        assert_eq!(
            enforcer.step(secs(106), stop(secs(3)), None),
            Some(Action::Terminate),
            "a third of nine seconds"
        );
        assert_eq!(enforcer.step(secs(109), stop(secs(0)), Some(Loss::MaxHold)), Some(Action::Kill));
        assert_eq!(enforcer.stopped_by(), Some(Loss::MaxHold));
    }

    #[test]
    fn a_zero_grace_kills_at_once_and_a_huge_one_does_not_overflow() {
        assert_eq!(Enforcer::new(secs(0)).step(secs(1), None, Some(Loss::Replaced)), Some(Action::Kill));
        let mut enforcer = Enforcer::new(secs(u64::MAX));
        assert_eq!(enforcer.step(secs(1), None, Some(Loss::Replaced)), Some(Action::Terminate));
    }
}
