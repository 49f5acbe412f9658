//! The judge of the property tests: it observes a lock state from outside and checks that it never breaks the rules.
//!
//! The judge has its own simple records of the *answers*, and checks each grant, refusal and missing grant against
//! them. It predicts nothing and shares no code with the lock state. Each `check_…` function takes one answer, panics
//! if the answer breaks a rule, and else records it.

use std::collections::HashMap;

use super::{Pushed, entry_life, fixture::*};
use crate::{Answer, Claim, ClaimId, Grant, How, Instant, Mode, Token, Upgraded, View};

/// The records of the judge.
pub(super) struct Judge {
    pub(super) now: Instant,
    /// Everything that blocks other claims, from its grant to its end.
    pub(super) holds: Vec<JudgedHold>,
    queue: Vec<JudgedWaiter>,
    /// The claims whose pushed grant lapsed.
    silent: Vec<JudgedWaiter>,
    /// The ended claims, and until when a late request of each may arrive.
    tombstones: HashMap<ClaimId, Instant>,
    /// The newest token of all grants.
    newest_token: u64,
}

/// A grant that was answered or pushed, until its end.
#[derive(Clone, Debug)]
pub(super) struct JudgedHold {
    pub(super) claim: Claim,
    pub(super) token: Token,
    /// How many tokens in a row the grant carries.
    tokens: u32,
    expires: Instant,
    pub(super) state: JudgedState,
}

/// What is known of a hold, or what blocks the name after one.
#[derive(Clone, Debug)]
pub(super) enum JudgedState {
    Held,
    /// Granted by a push, and not confirmed. The time is that until which its queue entry would have lasted.
    Pushed(Instant),
    Broken,
    MinHold,
}

/// A claim that waits or is silent.
struct JudgedWaiter {
    claim: Claim,
    expires: Instant,
}

impl Judge {
    pub(super) fn new(now: Instant) -> Self {
        let (holds, queue, silent) = Default::default();
        Self { now, holds, queue, silent, tombstones: HashMap::new(), newest_token: 0 }
    }

    /// Advances the clock: leases end.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = now;
        for hold in self.holds.extract_if(.., |hold| hold.expires <= now).collect::<Vec<_>>() {
            match hold.state {
                JudgedState::Held | JudgedState::Broken => self.add_tombstone(hold.claim.id),
                JudgedState::Pushed(expires) => self.silent.push(JudgedWaiter { claim: hold.claim, expires }),
                JudgedState::MinHold => {}
            }
        }
        self.queue.retain(|waiter| waiter.expires > now);
        self.silent.retain(|waiter| waiter.expires > now);
    }

    /// The hold of this claim, if it has one.
    pub(super) fn hold_of(&self, id: ClaimId) -> Option<&JudgedHold> {
        self.holds.iter().find(|hold| hold.claim.id == id && !matches!(hold.state, JudgedState::MinHold))
    }

    /// Whether nothing holds the name or waits for it.
    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }

    /// Checks the answer to a claim, and the grants that the same step pushed.
    pub(super) fn check_claim(&mut self, claim: &Claim, how: How, answer: &Answer, pushed: &[Pushed<u8>]) {
        let known_hold = self.hold_of(claim.id).cloned();
        let was_silent = self.silent.extract_if(.., |waiter| waiter.claim.id == claim.id).next();
        let was_requeued = was_silent.is_some();
        // One step may do two things: first the passing of time frees the name for the queue, then the claim is
        // handled. The order of the tokens tells which grant came first.
        let own_grant = match (answer, &known_hold) {
            (Answer::Held(grant), None) => Some(grant),
            _ => None,
        };
        let own_token = own_grant.map_or(u64::MAX, |grant| grant.token.number);
        let (pushed_before, pushed_after): (Vec<_>, Vec<_>) =
            pushed.iter().cloned().partition(|pushed| pushed.grant.token.number < own_token);
        self.check_pushed(&pushed_before);
        match answer {
            Answer::Held(grant) => {
                assert_eq!(grant.ttl, Some(claim.ttl), "asked for, so granted in full");
                match known_hold {
                    Some(known_hold) => {
                        assert_eq!(
                            (known_hold.token, known_hold.tokens),
                            (grant.token, grant.tokens),
                            "idempotent"
                        )
                    }
                    None => self.check_grant(claim, grant, how == How::Create || was_requeued),
                }
                self.confirm(claim);
            }
            Answer::Waiting(hint) => {
                assert!(known_hold.is_none());
                let position = self.record_waiter(claim, how, was_requeued);
                assert_eq!(hint.ahead, Some(position as u32));
            }
            Answer::Taken(_) => {
                assert!(how == How::Create && !claim.may_queue && known_hold.is_none() && !was_requeued);
                assert!(self.position(claim.id).is_none() && !self.is_dead(claim.id));
                assert!(!self.queue.is_empty() || !self.fits(claim.mode), "taken is justified");
            }
            Answer::Gone => {
                let is_broken = known_hold.is_some_and(|hold| matches!(hold.state, JudgedState::Broken));
                let is_unknown =
                    self.position(claim.id).is_none() && !was_requeued && self.hold_of(claim.id).is_none();
                assert!(
                    is_broken || (is_unknown && (how == How::Ask || self.is_dead(claim.id))),
                    "gone is justified"
                );
            }
        }
        self.check_pushed(&pushed_after);
        self.no_waiter_is_forgotten();
    }

    /// Checks the grants that a step pushed: they go to the head of the queue, in its order.
    pub(super) fn check_pushed(&mut self, pushed: &[Pushed<u8>]) {
        for pushed in pushed {
            assert_eq!(u128::from(pushed.client), u128::from_be_bytes(pushed.id.0), "sent to its client");
            let waiter = self.queue.first().unwrap_or_else(|| panic!("pushed without a waiter: {pushed:?}"));
            let (claim, queue_entry_end) = (waiter.claim.clone(), waiter.expires);
            assert_eq!(pushed.id, claim.id, "first come, first served");
            assert_eq!(pushed.grant.ttl, Some(claim.claim_time.min(claim.ttl)));
            self.check_grant(&claim, &pushed.grant, false);
            self.holds.last_mut().unwrap().state = JudgedState::Pushed(queue_entry_end);
        }
    }

    /// Checks the answer to a renewal.
    pub(super) fn check_renewal(&mut self, claim: &Claim, token: Token, extended: bool) {
        let hold = self.hold_of(claim.id).filter(|hold| hold.token == token);
        assert_eq!(
            extended,
            hold.is_some_and(|hold| !matches!(hold.state, JudgedState::Broken)),
            "exactly the hold of its own claim and token"
        );
        if extended {
            self.confirm(claim);
        }
    }

    /// Checks the answer to a downgrade, and the grants that the same step pushed.
    pub(super) fn check_downgrade(
        &mut self,
        claim: &Claim,
        token: Token,
        is_done: bool,
        pushed: &[Pushed<u8>],
    ) {
        // Grants of a name that the passing of time has freed come before the downgrade. Then another claim holds it.
        let held = self.hold_of(claim.id).filter(|hold| hold.token == token).cloned();
        let was_exclusive = held.is_some_and(|hold| hold.claim.mode == Mode::Exclusive);
        if !(is_done && was_exclusive) {
            self.check_pushed(pushed);
            return self.check_renewal(claim, token, is_done);
        }
        self.check_renewal(claim, token, is_done);
        let hold = self.holds.iter_mut().find(|hold| hold.claim.id == claim.id);
        hold.unwrap().claim.mode = Mode::Shared;
        self.check_pushed(pushed);
        self.no_waiter_is_forgotten();
    }

    /// Checks the answer to an upgrade of the hold of `old` by `new`, and the grants that the same step pushed.
    pub(super) fn check_upgrade(
        &mut self,
        (old, token): (ClaimId, Token),
        new: &Claim,
        answer: &Upgraded,
        pushed: &[Pushed<u8>],
    ) {
        self.check_pushed(pushed);
        let known = self.hold_of(new.id).cloned();
        let hold = self.hold_of(old).filter(|hold| hold.token == token && hold.claim.mode == Mode::Shared);
        let is_live = hold.is_some_and(|hold| !matches!(hold.state, JudgedState::Broken));
        match answer {
            Upgraded::Held(grant) => {
                if let Some(known) = known {
                    assert_eq!(known.token, grant.token, "idempotent");
                } else {
                    assert!(is_live && self.holds.len() == 1 && self.queue.is_empty(), "the only claim");
                    self.holds.clear();
                    self.add_tombstone(old);
                    self.check_grant(new, grant, true);
                }
                self.confirm(new);
            }
            Upgraded::Taken => {
                assert!(is_live && known.is_none());
                let is_alone = self.holds.len() == 1 && self.queue.is_empty();
                assert!(!is_alone || self.is_dead(new.id), "taken is justified");
            }
            Upgraded::Lost(_) => assert!(
                !is_live || known.is_some_and(|known| matches!(known.state, JudgedState::Broken)),
                "lost is justified"
            ),
        }
    }

    /// Checks the answer to a release. `min_hold_until`: until when the name has to stay taken, if the release asked
    /// for that.
    pub(super) fn check_release(
        &mut self,
        id: ClaimId,
        token: Option<Token>,
        min_hold_until: Option<Instant>,
        freed: bool,
    ) {
        let index = self
            .holds
            .iter()
            .position(|hold| hold.claim.id == id && !matches!(hold.state, JudgedState::MinHold));
        let Some(index) = index else {
            let was_queued = [&mut self.queue, &mut self.silent]
                .into_iter()
                .any(|queue| queue.extract_if(.., |waiter| waiter.claim.id == id).next().is_some());
            assert_eq!(freed, was_queued && token.is_none(), "a queue entry is no hold");
            return self.add_tombstone(id);
        };
        // Whether the release is for this hold, and not for an earlier one of the same claim.
        let is_named = token.is_none_or(|token| token == self.holds[index].token);
        assert_eq!(freed, is_named, "exactly the hold of its own claim and token");
        match min_hold_until {
            Some(until) if is_named && !matches!(self.holds[index].state, JudgedState::Broken) => {
                self.holds[index].state = JudgedState::MinHold;
                self.holds[index].expires = until;
            }
            _ => drop(self.holds.remove(index)),
        }
        self.add_tombstone(id);
    }

    /// Checks which claim a break of the hold with this token number has ended, if any.
    pub(super) fn check_break(&mut self, token_number: u64, force: bool, broken: Option<ClaimId>) {
        let index = self.holds.iter().position(|hold| {
            (hold.token.number..hold.token.number + u64::from(hold.tokens)).contains(&token_number)
        });
        assert_eq!(broken, index.map(|index| self.holds[index].claim.id));
        let Some(index) = index else { return };
        if force || matches!(self.holds[index].state, JudgedState::MinHold) {
            let hold = self.holds.remove(index);
            self.add_tombstone(hold.claim.id);
        } else {
            self.holds[index].state = JudgedState::Broken;
        }
    }

    /// No lost wake-up: the head of the queue truly cannot have the name now.
    pub(super) fn no_waiter_is_forgotten(&self) {
        if let Some(head) = self.queue.first() {
            assert!(!self.fits(head.claim.mode), "{} was forgotten", head.claim.id);
        }
    }

    /// Checks that the view of the lock state agrees with the records.
    pub(super) fn check_view(&self, view: &View) {
        let sorted = |mut rows: Vec<(String, u64)>| {
            rows.sort();
            rows
        };
        let viewed = view.holders.iter().map(|holder| (holder.id.clone(), holder.token.unwrap())).collect();
        let recorded = self.holds.iter().map(|hold| (hold.claim.id.to_string(), hold.token.number)).collect();
        assert_eq!(sorted(viewed), sorted(recorded));
        let viewed: Vec<_> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
        let recorded: Vec<_> = self.queue.iter().map(|waiter| waiter.claim.id.to_string()).collect();
        // The view shows the queue in its order, and then the silent claims.
        assert_eq!(viewed[..recorded.len().min(viewed.len())], recorded);
        assert_eq!(viewed.len(), recorded.len() + self.silent.len());
    }

    /// Checks a new grant: its tokens are larger than all earlier tokens, its mode is compatible with all holds, and it
    /// overtook no claim. `may_be_new`: whether the claim is allowed to be granted without having been in the queue.
    fn check_grant(&mut self, claim: &Claim, grant: &Grant, may_be_new: bool) {
        assert!(grant.token.number > self.newest_token, "tokens grow");
        self.newest_token = grant.token.number + u64::from(grant.tokens) - 1;
        assert!(self.fits(claim.mode), "{claim:?} beside {:?}", self.holds);
        match self.position(claim.id) {
            Some(0) => drop(self.queue.remove(0)),
            Some(position) => panic!("overtook {position} others"),
            None => {
                assert!(may_be_new && self.queue.is_empty(), "a new claim overtook the queue");
                assert!(!self.is_dead(claim.id), "a late request of an ended claim");
            }
        }
        let expires = self.now.after(grant.ttl.unwrap());
        let (token, tokens, state) = (grant.token, grant.tokens, JudgedState::Held);
        self.holds.push(JudgedHold { claim: claim.clone(), token, tokens, expires, state });
    }

    /// Records that a hold was confirmed by a request of its claim, which extends it.
    fn confirm(&mut self, claim: &Claim) {
        let expires = self.now.after(claim.ttl);
        let hold = self
            .holds
            .iter_mut()
            .find(|hold| hold.claim.id == claim.id && !matches!(hold.state, JudgedState::MinHold));
        let hold = hold.unwrap();
        hold.expires = hold.expires.max(expires);
        hold.state = JudgedState::Held;
    }

    /// Records that a claim waits; returns the position at which it must be.
    fn record_waiter(&mut self, claim: &Claim, how: How, was_requeued: bool) -> usize {
        let expires = self.now.after(entry_life(claim.ttl));
        if let Some(position) = self.position(claim.id) {
            self.queue[position].expires = expires;
            return position;
        }
        assert!(was_requeued || (how == How::Create && claim.may_queue && !self.is_dead(claim.id)));
        self.queue.push(JudgedWaiter { claim: claim.clone(), expires });
        self.queue.len() - 1
    }

    fn position(&self, id: ClaimId) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.claim.id == id)
    }

    fn add_tombstone(&mut self, id: ClaimId) {
        self.tombstones.insert(id, self.now.after(REQUEST_LIFE));
    }

    fn is_dead(&self, id: ClaimId) -> bool {
        self.tombstones.get(&id).is_some_and(|&until| until > self.now)
    }

    /// Whether this mode is compatible with all current holds, as [`Mode`] documents it.
    fn fits(&self, mode: Mode) -> bool {
        let modes = || self.holds.iter().map(|hold| hold.claim.mode);
        let taken_permits: u32 =
            modes().map(|mode| if let Mode::Permits { count, .. } = mode { count } else { 0 }).sum();
        modes().all(|other| match (mode, other) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permits { count, limit }, Mode::Permits { limit: other_limit, .. }) => {
                limit == other_limit && taken_permits + count <= limit
            }
            _ => false,
        })
    }
}
