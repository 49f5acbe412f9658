//! Properties that hold for every order of events and every passing of time, as the [`Judge`] checks them.

use std::time::Duration;

use proptest::prelude::*;

use super::{ENDED_LIFE, Refusal, fixture::*, judge::Judge};
use crate::{Claim, How, Mode, Previous, Release, Token};

/// The number of claims for the name.
const CLAIMS: u8 = 9;

#[derive(Clone, Debug)]
enum Event {
    /// `claim` by the claim with this number.
    Call(u8, How),
    /// A claim of another kind of lock on the same name.
    Clash(u8),
    Renew(u8, Which),
    /// The minimum hold time in milliseconds; whether the holder panicked.
    Release(u8, Which, Option<u64>, bool),
    /// The token; with force?
    Break(u64, bool),
    Settle,
}

/// The token that a request carries.
#[derive(Clone, Copy, Debug)]
enum Which {
    Own,
    None,
    Wrong,
}

fn event() -> impl Strategy<Value = Event> {
    let how = prop_oneof![2 => Just(How::Create), 2 => Just(How::Ask)];
    let which = || prop_oneof![6 => Just(Which::Own), 2 => Just(Which::None), 1 => Just(Which::Wrong)];
    let nth = || 1..=CLAIMS;
    let min_hold = prop_oneof![5 => Just(None), 1 => (1..40_u64).prop_map(|tenths| Some(tenths * 100))];
    prop_oneof![
        12 => (nth(), how).prop_map(|(nth, how)| Event::Call(nth, how)),
        1 => nth().prop_map(Event::Clash),
        4 => (nth(), which()).prop_map(|(nth, which)| Event::Renew(nth, which)),
        8 => (nth(), which(), min_hold, any::<bool>()).prop_map(|(nth, which, min_hold, panicked)| Event::Release(nth, which, min_hold, panicked)),
        1 => (0..60_u64, any::<bool>()).prop_map(|(number, force)| Event::Break(number, force)),
        2 => Just(Event::Settle),
    ]
}

/// Events, each with the pause before it in tenths of a second: mostly none, sometimes longer than a claim time, seldom
/// longer than a lease. All times are whole tenths, so that events can hit the exact instant at which a lease ends.
fn history() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let pause = prop_oneof![6 => Just(0), 5 => 1..25_u64, 1 => 25..200_u64];
    prop::collection::vec((pause, event()), 1..120)
}

/// A claim whose ttl, claim time, number of tokens and `may_queue` differ from those of others.
fn claim_in(number: u8, semaphore: bool) -> Claim {
    let mode = match (semaphore, number % 3) {
        (true, rest) => Mode::Permits { count: 1 + u32::from(rest), limit: 4 },
        (false, 0) => Mode::Exclusive,
        (false, _) => Mode::Shared,
    };
    let mut claim = claim(number, mode);
    claim.ttl = Duration::from_millis(500 + 2_500 * u64::from(number));
    claim.claim_time = Duration::from_millis(300 * u64::from(number));
    claim.tokens = u32::from(number % 4);
    claim.may_queue = number % 5 != 4;
    claim
}

/// One random history, on the lock state and on the judge.
struct Run {
    fixture: Fixture,
    judge: Judge,
    semaphore: bool,
}

impl Run {
    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Call(nth, how) => {
                let claim = claim_in(nth, self.semaphore);
                let answer = self.fixture.call(&claim, how).unwrap();
                self.judge.called(&claim, how, &answer, &self.fixture.pushed);
            }
            Event::Clash(nth) => self.clash(nth),
            Event::Renew(nth, which) => {
                let claim = claim_in(nth, self.semaphore);
                let token = self.token(nth, which).unwrap_or(token(0));
                let extended =
                    self.fixture.step(|lock, step| lock.renew(claim.id, token, claim.ttl, step)).is_ok();
                // Time may have freed the name for others first; the hold itself does not depend on the order.
                self.judge.all_pushed(&self.fixture.pushed);
                self.judge.renewed(&claim, token, extended);
            }
            Event::Release(nth, which, min_hold, panicked) => {
                let token = self.token(nth, which);
                let ended = if panicked { Previous::Abandoned } else { Previous::Clean };
                let min_hold = min_hold.map(Duration::from_millis);
                let freed = self.fixture.end(&Release { ended, min_hold, ..release(nth, token) });
                let min_hold_until = min_hold.map(|min_hold| self.fixture.now.after(min_hold));
                self.judge.released(id(nth), token, min_hold_until, freed);
                self.judge.all_pushed(&self.fixture.pushed);
            }
            Event::Break(number, force) => {
                let broken = self.fixture.break_hold(number, force).map(|hold| hold.id);
                self.judge.broken(number, force, broken);
                self.judge.all_pushed(&self.fixture.pushed);
            }
            Event::Settle => {
                self.fixture.settle();
                self.judge.all_pushed(&self.fixture.pushed);
            }
        }
        self.judge.no_waiter_is_forgotten();
        self.judge.compare(&self.fixture.view());
    }

    fn clash(&mut self, nth: u8) {
        self.fixture.settle();
        self.judge.all_pushed(&self.fixture.pushed);
        let number = CLAIMS + nth;
        if !self.judge.is_empty() {
            let other = claim_in(number, !self.semaphore);
            let answer = self.fixture.call(&other, How::Create);
            assert!(matches!(answer, Err(Refusal::Clash { asked, .. }) if asked == other.mode), "{answer:?}");
        }
    }

    fn token(&self, nth: u8, which: Which) -> Option<Token> {
        match which {
            Which::Own => self.judge.hold_of(id(nth)).map(|hold| hold.token),
            Which::None => None,
            Which::Wrong => Some(token(1_000_000)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// I1 exclusion between grant and end, I4 growing tokens, I8 first come first served and writers not starved, I7 no
    /// lost wake-up, I13 "taken" justified, doubled requests, own only, no effect of late requests, I6 nothing left at
    /// rest.
    #[test]
    fn random_steps_keep_the_rules(semaphore: bool, saves: bool, history in history()) {
        let mut fixture = Fixture::new();
        fixture.saves = saves;
        let judge = Judge::new(fixture.now);
        let mut run = Run { fixture, judge, semaphore };
        for (pause, event) in &history {
            run.fixture.pass(*pause * 100);
            run.judge.pass(run.fixture.now);
            run.happen(event);
        }
        run.fixture.pass(3_600_000);
        run.fixture.settle();
        prop_assert!(run.fixture.pushed.is_empty(), "all queue entries have lapsed");
        prop_assert!(!run.fixture.lock.is_used());
        run.fixture.tombstones.forget_expired(run.fixture.now);
        run.fixture.now = run.fixture.now.after(ENDED_LIFE);
        prop_assert!(run.fixture.lock.is_idle(run.fixture.now));
        run.fixture.tombstones.forget_expired(run.fixture.now);
        prop_assert!(run.fixture.tombstones.is_empty());
    }
}
