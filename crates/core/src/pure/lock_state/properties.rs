//! Property tests: random requests at random times, on a lock state. The [`Judge`] checks each answer.

use std::time::Duration;

use proptest::prelude::*;

use super::{ENDED_LIFE, Refusal, fixture::*, judge::Judge};
use crate::{Claim, How, Mode, Previous, Release, Token};

/// The number of claims for the name; a claim is identified by its number, from 1 on.
const CLAIMS: u8 = 9;

/// Added to the number of a claim: the claim of its upgrade. It leaves the kind of its mode as it is.
const UPGRADES: u8 = 60;

/// A request to the lock state.
#[derive(Clone, Debug)]
enum Request {
    /// `claim` by the claim with this number.
    Claim(u8, How),
    /// A claim of another kind of lock on the same name, which has to be refused.
    ClaimOtherKind(u8),
    /// The claim; the token.
    Renew(u8, CarriedToken),
    /// The claim; the token.
    Downgrade(u8, CarriedToken),
    /// The claim; the token.
    Upgrade(u8, CarriedToken),
    /// The claim; the token; the minimum hold time in milliseconds; whether the holder panicked.
    Release(u8, CarriedToken, Option<u64>, bool),
    /// The number of the token; whether by force.
    Break(u64, bool),
    Settle,
}

/// The token that a request carries.
#[derive(Clone, Copy, Debug)]
enum CarriedToken {
    /// That of the hold of the claim, if it holds.
    OfHold,
    None,
    Wrong,
}

fn request() -> impl Strategy<Value = Request> {
    let how = prop_oneof![2 => Just(How::Create), 2 => Just(How::Ask)];
    let token = || prop_oneof![6 => Just(CarriedToken::OfHold), 2 => Just(CarriedToken::None), 1 => Just(CarriedToken::Wrong)];
    let number = || prop_oneof![6 => 1..=CLAIMS, 1 => UPGRADES + 1..=UPGRADES + CLAIMS];
    let min_hold = prop_oneof![5 => Just(None), 1 => (1..40_u64).prop_map(|tenths| Some(tenths * 100))];
    prop_oneof![
        12 => (1..=CLAIMS, how).prop_map(|(number, how)| Request::Claim(number, how)),
        1 => (1..=CLAIMS).prop_map(Request::ClaimOtherKind),
        4 => (number(), token()).prop_map(|(number, token)| Request::Renew(number, token)),
        2 => (number(), token()).prop_map(|(number, token)| Request::Downgrade(number, token)),
        2 => (1..=CLAIMS, token()).prop_map(|(number, token)| Request::Upgrade(number, token)),
        8 => (number(), token(), min_hold, any::<bool>()).prop_map(|(number, token, min_hold, panicked)| Request::Release(number, token, min_hold, panicked)),
        1 => (0..60_u64, any::<bool>()).prop_map(|(token_number, force)| Request::Break(token_number, force)),
        2 => Just(Request::Settle),
    ]
}

/// Requests, each with the pause before it in tenths of a second: mostly no pause, sometimes a pause longer than a
/// claim time, seldom one longer than a lease. All times are whole tenths, so that requests can hit the exact instant
/// at which a lease ends.
fn requests() -> impl Strategy<Value = Vec<(u64, Request)>> {
    let pause = prop_oneof![6 => Just(0), 5 => 1..25_u64, 1 => 25..200_u64];
    prop::collection::vec((pause, request()), 1..120)
}

/// The claim with this number. Its ttl, claim time, number of tokens and `may_queue` differ from those of the others.
fn varied_claim(number: u8, semaphore: bool) -> Claim {
    let mode = match (semaphore, number % 3) {
        (true, remainder) => Mode::Permits { count: 1 + u32::from(remainder), limit: 4 },
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

/// One sequence of random requests, on the lock state and on the judge.
struct Run {
    fixture: Fixture,
    judge: Judge,
    /// The claims are for permits, not for a read-write lock.
    semaphore: bool,
}

impl Run {
    /// Sends the request to the lock state, and lets the judge check the answer.
    fn send(&mut self, request: &Request) {
        match *request {
            Request::Claim(number, how) => {
                let claim = varied_claim(number, self.semaphore);
                let answer = self.fixture.call(&claim, how).unwrap();
                self.judge.check_claim(&claim, how, &answer, &self.fixture.pushed);
            }
            Request::ClaimOtherKind(number) => self.claim_other_kind(number),
            Request::Renew(number, carried) => {
                let claim = varied_claim(number, self.semaphore);
                let token = self.token(number, carried).unwrap_or(token(0));
                let extended =
                    self.fixture.step(|lock, step| lock.renew(claim.id, token, claim.ttl, step)).is_ok();
                // The step first grants the name to the queue if expired leases freed it. The renewed hold is none of
                // these grants.
                self.judge.check_pushed(&self.fixture.pushed);
                self.judge.check_renewal(&claim, token, extended);
            }
            Request::Downgrade(number, carried) => {
                let claim = varied_claim(number, self.semaphore);
                let token = self.token(number, carried).unwrap_or(token(0));
                let downgraded =
                    self.fixture.step(|lock, step| lock.downgrade(claim.id, token, claim.ttl, step)).is_ok();
                self.judge.check_downgrade(&claim, token, downgraded, &self.fixture.pushed);
            }
            Request::Upgrade(number, carried) => {
                let token = self.token(number, carried).unwrap_or(token(0));
                let new = Claim {
                    mode: Mode::Exclusive,
                    may_queue: false,
                    ..varied_claim(UPGRADES + number, self.semaphore)
                };
                if self.semaphore {
                    // Permits are not upgraded.
                    self.fixture.settle();
                    self.judge.check_pushed(&self.fixture.pushed);
                } else {
                    let client = UPGRADES + number;
                    let answer =
                        self.fixture.step(|lock, step| lock.upgrade(id(number), token, &new, &client, step));
                    self.judge.check_upgrade((id(number), token), &new, &answer, &self.fixture.pushed);
                }
            }
            Request::Release(number, carried, min_hold, panicked) => {
                let token = self.token(number, carried);
                let ended = if panicked { Previous::Abandoned } else { Previous::Clean };
                let min_hold = min_hold.map(Duration::from_millis);
                let freed = self.fixture.send_release(&Release { ended, min_hold, ..release(number, token) });
                let min_hold_until = min_hold.map(|min_hold| self.fixture.now.after(min_hold));
                self.judge.check_release(id(number), token, min_hold_until, freed);
                self.judge.check_pushed(&self.fixture.pushed);
            }
            Request::Break(token_number, force) => {
                let broken = self.fixture.break_hold(token_number, force).map(|hold| hold.id);
                self.judge.check_break(token_number, force, broken);
                self.judge.check_pushed(&self.fixture.pushed);
            }
            Request::Settle => {
                self.fixture.settle();
                self.judge.check_pushed(&self.fixture.pushed);
            }
        }
        self.judge.no_waiter_is_forgotten();
        self.judge.check_view(&self.fixture.view());
    }

    fn claim_other_kind(&mut self, number: u8) {
        self.fixture.settle();
        self.judge.check_pushed(&self.fixture.pushed);
        let new_number = CLAIMS + number;
        if !self.judge.is_empty() {
            let other_kind = varied_claim(new_number, !self.semaphore);
            let answer = self.fixture.call(&other_kind, How::Create);
            assert!(
                matches!(answer, Err(Refusal::Clash { asked, .. }) if asked == other_kind.mode),
                "{answer:?}"
            );
        }
    }

    /// The token that a request of the claim with this number carries.
    fn token(&self, number: u8, carried: CarriedToken) -> Option<Token> {
        match carried {
            CarriedToken::OfHold => self.judge.hold_of(id(number)).map(|hold| hold.token),
            CarriedToken::None => None,
            CarriedToken::Wrong => Some(token(1_000_000)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks these invariants: I1 exclusion between grant and end, I4 growing tokens, I6 nothing left at the end, I7
    /// no lost wake-up, I8 first come first served and writers not starved, I13 "taken" is justified; and: a doubled
    /// request changes nothing, a request ends or extends the holds of its own claim only, a late request has no
    /// effect.
    #[test]
    fn random_steps_keep_the_rules(semaphore: bool, restores: bool, requests in requests()) {
        let mut fixture = Fixture::new();
        fixture.restores = restores;
        let judge = Judge::new(fixture.now);
        let mut run = Run { fixture, judge, semaphore };
        for (pause, request) in &requests {
            run.fixture.advance(*pause * 100);
            run.judge.advance(run.fixture.now);
            run.send(request);
        }
        run.fixture.advance(3_600_000);
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
