//! When CMD must be told to stop, and when it is killed, so that it never works without the lock.
//!
//! Pure: the time, the deadline and the loss come in as arguments. Times are counted from the boot of the machine.

use std::time::Duration;

use leasehold::Loss;

/// On leased engines the grace is at most this part of the lease (and of `--max-hold`), so that a renewal that comes in
/// time, at a third of the lease, never meets a CMD that was told to stop already.
const GRACE_PART: u32 = 3;
/// KILL is sent this long before the deadline (or a twentieth of a short lease), for it must be over by then: a process
/// takes a moment to die, and a timer a moment to wake us.
const AHEAD: Duration = Duration::from_millis(50);
const AHEAD_PART: u32 = 20;
/// The longest time between two looks at a deadline: timers stop while the machine is suspended, deadlines do not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The rules of one hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) grace: Duration,
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// The hold lives as long as its process: no time ends it, and nobody else gets it while CMD is being stopped.
    pub(crate) exact: bool,
}

/// What is to be done to CMD's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Terminate,
    Kill,
}

/// Decides for one hold.
#[derive(Debug)]
pub(crate) struct Enforcer {
    exact: bool,
    grace: Duration,
    ahead: Duration,
    /// When CMD had to be gone, as known last while the hold stood: a little before the deadline.
    deadline: Option<Duration>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    Terminated { kill_at: Duration },
    Killed,
}

impl Enforcer {
    pub(crate) fn new(rules: Rules) -> Self {
        let Rules { grace, ttl, max_hold, exact } = rules;
        let part = max_hold.map_or(ttl, |max_hold| max_hold.min(ttl)) / GRACE_PART;
        let grace = if exact { grace } else { grace.min(part) };
        let ahead = AHEAD.min(ttl / AHEAD_PART);
        Self { exact, grace, ahead, deadline: None, stage: Stage::Held }
    }

    /// What is to be done now. `remaining` is what the guard says (`None`: no deadline), `loss` what was reported.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        remaining: Option<Duration>,
        loss: Option<Loss>,
    ) -> Option<Order> {
        match self.stage {
            Stage::Held => {
                if let Some(loss) = loss {
                    return Some(self.lost(now, loss));
                }
                // Nobody else gets an exact hold by the passing of time: only a reported loss counts.
                let left = remaining.filter(|_| !self.exact).map(|left| left.saturating_sub(self.ahead));
                self.deadline = left.map(|left| now.saturating_add(left));
                let deadline = self.deadline.filter(|deadline| deadline.saturating_sub(self.grace) <= now)?;
                Some(self.stop(now, deadline))
            }
            Stage::Terminated { kill_at } if now >= kill_at => {
                self.stage = Stage::Killed;
                Some(Order::Kill)
            }
            Stage::Terminated { .. } | Stage::Killed => None,
        }
    }

    /// How long nothing is to be done, if nothing happens. `None`: for ever.
    pub(crate) fn sleep(&self, now: Duration) -> Option<Duration> {
        let until = |at: Duration| at.saturating_sub(now).min(LOOK_AGAIN);
        match self.stage {
            Stage::Held => self.deadline.map(|deadline| until(deadline.saturating_sub(self.grace))),
            Stage::Terminated { kill_at } => Some(until(kill_at)),
            Stage::Killed => None,
        }
    }

    /// Whether CMD is being stopped, and so does not end under the lock.
    pub(crate) fn is_over(&self) -> bool {
        self.stage != Stage::Held
    }

    /// When what is left of CMD's group is to be killed. `None`: it was, or it need not be.
    pub(crate) fn kill_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Terminated { kill_at } => Some(kill_at),
            Stage::Held | Stage::Killed => None,
        }
    }

    fn lost(&mut self, now: Duration, loss: Loss) -> Order {
        let end = now.saturating_add(self.grace);
        let kill_at = match (loss, self.deadline) {
            (Loss::Lapsed, _) => now,
            (_, Some(deadline)) => end.min(deadline),
            (_, None) => end,
        };
        self.stop(now, kill_at)
    }

    fn stop(&mut self, now: Duration, kill_at: Duration) -> Order {
        if now >= kill_at {
            self.stage = Stage::Killed;
            return Order::Kill;
        }
        self.stage = Stage::Terminated { kill_at };
        Order::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// What the guard says when CMD may run for so long.
    fn left(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs) + AHEAD)
    }

    fn leased(grace: u64) -> Enforcer {
        Enforcer::new(Rules { grace: secs(grace), ttl: secs(30), max_hold: None, exact: false })
    }

    fn exact(grace: u64) -> Enforcer {
        Enforcer::new(Rules { grace: secs(grace), ttl: secs(30), max_hold: Some(secs(9)), exact: true })
    }

    #[test]
    fn without_a_renewal_cmd_is_told_before_the_deadline_and_killed_at_it() {
        let mut enforcer = leased(5);
        assert_eq!(enforcer.step(secs(100), left(30), None), None);
        assert_eq!(enforcer.sleep(secs(100)), Some(secs(1)), "it looks again every second");
        assert_eq!(enforcer.step(secs(124), left(6), None), None);
        assert_eq!(enforcer.step(secs(125), left(5), None), Some(Order::Terminate));
        assert_eq!(enforcer.step(secs(126), left(4), None), None, "told once");
        assert!(enforcer.is_over());
        assert_eq!(enforcer.step(secs(129), left(30), None), None);
        assert_eq!(
            enforcer.step(secs(130), left(29), None),
            Some(Order::Kill),
            "a late renewal changes nothing"
        );
        assert_eq!(enforcer.sleep(secs(130)), None);
    }

    #[test]
    fn a_renewal_in_time_is_never_too_late_whatever_the_grace() {
        let mut enforcer = leased(300);
        for tenth in 0..100 {
            // Renewed at a third of the lease, and one renewal was missed.
            let remaining = left(30 - tenth % 20);
            assert_eq!(enforcer.step(secs(100 + tenth), remaining, None), None);
        }
        assert_eq!(enforcer.step(secs(200), left(10), None), Some(Order::Terminate));
    }

    #[test]
    fn a_reported_loss_gives_the_smaller_of_grace_and_what_was_left() {
        for (time, kill) in [(20, 105), (7, 105)] {
            let mut enforcer = leased(5);
            enforcer.step(secs(100), left(time), None);
            assert_eq!(
                enforcer.step(secs(100), Some(Duration::ZERO), Some(Loss::Gone)),
                Some(Order::Terminate)
            );
            assert_eq!(enforcer.kill_at(), Some(secs(kill)));
        }
        let mut enforcer = leased(5);
        enforcer.step(secs(100), left(6), None);
        assert_eq!(enforcer.step(secs(103), None, Some(Loss::Broken)), Some(Order::Terminate));
        assert_eq!(enforcer.kill_at(), Some(secs(106)), "not a second past the old deadline");
        assert_eq!(enforcer.step(secs(106), None, Some(Loss::Broken)), Some(Order::Kill));
    }

    #[test]
    fn a_lapsed_lease_kills_at_once() {
        let mut enforcer = leased(5);
        enforcer.step(secs(100), left(30), None);
        // The machine slept over the deadline.
        assert_eq!(enforcer.step(secs(500), Some(Duration::ZERO), Some(Loss::Lapsed)), Some(Order::Kill));
        let mut enforcer = leased(5);
        assert_eq!(enforcer.step(secs(500), Some(Duration::ZERO), None), Some(Order::Kill));
    }

    #[test]
    fn an_exact_hold_has_no_deadline_and_a_whole_grace_after_a_loss() {
        let mut enforcer = exact(5);
        assert_eq!(enforcer.step(secs(100), left(1), None), None, "max_hold is told as a loss");
        assert_eq!(enforcer.sleep(secs(100)), None);
        assert_eq!(
            enforcer.step(secs(101), Some(Duration::ZERO), Some(Loss::MaxHold)),
            Some(Order::Terminate)
        );
        assert_eq!(enforcer.sleep(secs(101)), Some(secs(1)));
        assert_eq!(enforcer.step(secs(105), None, Some(Loss::MaxHold)), None);
        assert_eq!(enforcer.step(secs(106), None, Some(Loss::MaxHold)), Some(Order::Kill));
    }

    #[test]
    fn cmd_is_killed_a_moment_before_the_deadline_itself() {
        let mut enforcer = leased(0);
        assert_eq!(enforcer.step(secs(100), Some(secs(1)), None), None);
        assert_eq!(enforcer.sleep(secs(100)), Some(secs(1) - AHEAD));
        assert_eq!(enforcer.step(secs(101) - AHEAD, Some(AHEAD), None), Some(Order::Kill));
        let rules = Rules { grace: secs(5), ttl: Duration::from_millis(100), max_hold: None, exact: false };
        assert_eq!(Enforcer::new(rules).ahead, Duration::from_millis(5), "in proportion to a short lease");
    }

    #[test]
    fn no_grace_is_a_kill_at_once_and_a_huge_one_does_not_overflow() {
        assert_eq!(exact(0).step(secs(1), None, Some(Loss::Replaced)), Some(Order::Kill));
        let mut enforcer = exact(u64::MAX);
        assert_eq!(enforcer.step(secs(1), None, Some(Loss::Replaced)), Some(Order::Terminate));
    }

    #[test]
    fn a_short_max_hold_leaves_two_thirds_of_itself_for_work() {
        let rules = Rules { grace: secs(5), ttl: secs(30), max_hold: Some(secs(6)), exact: false };
        let mut enforcer = Enforcer::new(rules);
        assert_eq!(enforcer.step(secs(100), left(6), None), None);
        assert_eq!(enforcer.step(secs(104), left(2), None), Some(Order::Terminate));
    }
}
