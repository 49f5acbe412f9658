//! The judge observes a lock state from outside and checks that it never breaks the rules.
//!
//! The judge has its own naive records of the *answers*, and checks each grant, refusal and missing grant against
//! them. It predicts nothing and shares no code with the lock state.

use std::collections::HashMap;

use super::{Pushed, entry_life, fixture::*};
use crate::{Answer, Claim, ClaimId, Grant, How, Instant, Mode, Token, View};

pub(super) struct Judge {
    pub(super) now: Instant,
    /// Everything that blocks other claims, from its grant to its end.
    pub(super) holds: Vec<JudgedHold>,
    queue: Vec<JudgedWaiter>,
    /// The claims whose pushed grant lapsed.
    silent: Vec<JudgedWaiter>,
    /// The ended claims, and until when a late request of each may arrive.
    dead: HashMap<ClaimId, Instant>,
    /// The newest token.
    newest: u64,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedHold {
    pub(super) claim: Claim,
    pub(super) token: Token,
    tokens: u32,
    until: Instant,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Held,
    /// Until when its queue entry would have lasted.
    Pushed(Instant),
    Broken,
    MinHold,
}

struct JudgedWaiter {
    claim: Claim,
    until: Instant,
}

impl Judge {
    pub(super) fn new(now: Instant) -> Self {
        let (holds, queue, silent) = Default::default();
        Self { now, holds, queue, silent, dead: HashMap::new(), newest: 0 }
    }

    /// Advances the time: leases end.
    pub(super) fn pass(&mut self, now: Instant) {
        self.now = now;
        for hold in self.holds.extract_if(.., |hold| hold.until <= now).collect::<Vec<_>>() {
            match hold.kind {
                Kind::Held | Kind::Broken => self.add_tombstone(hold.claim.id),
                Kind::Pushed(until) => self.silent.push(JudgedWaiter { claim: hold.claim, until }),
                Kind::MinHold => {}
            }
        }
        self.queue.retain(|waiter| waiter.until > now);
        self.silent.retain(|waiter| waiter.until > now);
    }

    /// The hold of this claim, if it has one.
    pub(super) fn hold_of(&self, id: ClaimId) -> Option<&JudgedHold> {
        self.holds.iter().find(|hold| hold.claim.id == id && !matches!(hold.kind, Kind::MinHold))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }

    /// Records the answer to a claim, and the grants that the same step pushed.
    pub(super) fn called(&mut self, claim: &Claim, how: How, answer: &Answer, pushed: &[Pushed<u8>]) {
        let known = self.hold_of(claim.id).cloned();
        let was_silent = self.silent.extract_if(.., |waiter| waiter.claim.id == claim.id).next();
        let was_requeued = was_silent.is_some();
        // One step may do two things: first the passing of time frees the name for the queue, then the claim is
        // handled. The order of the tokens tells which grant came first.
        let own_grant = match (answer, &known) {
            (Answer::Held(grant), None) => Some(grant),
            _ => None,
        };
        let first_of_own = own_grant.map_or(u64::MAX, |grant| grant.token.number);
        let (pushed_before, pushed_after): (Vec<_>, Vec<_>) =
            pushed.iter().cloned().partition(|pushed| pushed.grant.token.number < first_of_own);
        self.all_pushed(&pushed_before);
        match answer {
            Answer::Held(grant) => {
                assert_eq!(grant.ttl, Some(claim.ttl), "asked for, so granted in full");
                match known {
                    Some(known) => {
                        assert_eq!((known.token, known.tokens), (grant.token, grant.tokens), "idempotent")
                    }
                    None => self.granted(claim, grant, how == How::Create || was_requeued),
                }
                self.confirm(claim);
            }
            Answer::Waiting(hint) => {
                assert!(known.is_none());
                let position = self.position_of(claim, how, was_requeued);
                assert_eq!(hint.ahead, Some(position as u32));
            }
            Answer::Taken(_) => {
                assert!(how == How::Create && !claim.may_queue && known.is_none() && !was_requeued);
                assert!(self.position(claim.id).is_none() && !self.is_dead(claim.id));
                assert!(!self.queue.is_empty() || !self.fits(claim.mode), "taken is justified");
            }
            Answer::Gone => {
                let broken = known.is_some_and(|known| matches!(known.kind, Kind::Broken));
                let unknown =
                    self.position(claim.id).is_none() && !was_requeued && self.hold_of(claim.id).is_none();
                assert!(
                    broken || (unknown && (how == How::Ask || self.is_dead(claim.id))),
                    "gone is justified"
                );
            }
        }
        self.all_pushed(&pushed_after);
        self.no_waiter_is_forgotten();
    }

    pub(super) fn all_pushed(&mut self, pushed: &[Pushed<u8>]) {
        for pushed in pushed {
            assert_eq!(u128::from(pushed.client), u128::from_be_bytes(pushed.id.0), "sent to its client");
            let waiter = self.queue.first().unwrap_or_else(|| panic!("pushed without a waiter: {pushed:?}"));
            let (claim, until) = (waiter.claim.clone(), waiter.until);
            assert_eq!(pushed.id, claim.id, "first come, first served");
            assert_eq!(pushed.grant.ttl, Some(claim.claim_time.min(claim.ttl)));
            self.granted(&claim, &pushed.grant, false);
            self.holds.last_mut().unwrap().kind = Kind::Pushed(until);
        }
    }

    pub(super) fn renewed(&mut self, claim: &Claim, token: Token, extended: bool) {
        let hold = self.hold_of(claim.id).filter(|hold| hold.token == token);
        assert_eq!(
            extended,
            hold.is_some_and(|hold| !matches!(hold.kind, Kind::Broken)),
            "only one's own, and that surely"
        );
        if extended {
            self.confirm(claim);
        }
    }

    /// Records the answer to a release; `min_hold_until` if the name was to stay taken.
    pub(super) fn released(
        &mut self,
        id: ClaimId,
        token: Option<Token>,
        min_hold_until: Option<Instant>,
        freed: bool,
    ) {
        let at =
            self.holds.iter().position(|hold| hold.claim.id == id && !matches!(hold.kind, Kind::MinHold));
        let Some(at) = at else {
            let was_queued = [&mut self.queue, &mut self.silent]
                .into_iter()
                .any(|queue| queue.extract_if(.., |waiter| waiter.claim.id == id).next().is_some());
            assert_eq!(freed, was_queued && token.is_none(), "a queue entry is no hold");
            return self.add_tombstone(id);
        };
        let mine = token.is_none_or(|token| token == self.holds[at].token);
        assert_eq!(freed, mine, "only one's own, and that surely");
        match min_hold_until {
            Some(until) if mine && !matches!(self.holds[at].kind, Kind::Broken) => {
                self.holds[at].kind = Kind::MinHold;
                self.holds[at].until = until;
            }
            _ => drop(self.holds.remove(at)),
        }
        self.add_tombstone(id);
    }

    pub(super) fn broken(&mut self, number: u64, force: bool, expected: Option<ClaimId>) {
        let at = self.holds.iter().position(|hold| {
            (hold.token.number..hold.token.number + u64::from(hold.tokens)).contains(&number)
        });
        assert_eq!(expected, at.map(|at| self.holds[at].claim.id));
        let Some(at) = at else { return };
        if force || matches!(self.holds[at].kind, Kind::MinHold) {
            let hold = self.holds.remove(at);
            self.add_tombstone(hold.claim.id);
        } else {
            self.holds[at].kind = Kind::Broken;
        }
    }

    /// No lost wake-up: the head of the queue truly cannot have the name now.
    pub(super) fn no_waiter_is_forgotten(&self) {
        if let Some(head) = self.queue.first() {
            assert!(!self.fits(head.claim.mode), "{} was forgotten", head.claim.id);
        }
    }

    /// The view of the lock state agrees with the judge's records.
    pub(super) fn compare(&self, view: &View) {
        let sorted = |mut rows: Vec<(String, u64)>| {
            rows.sort();
            rows
        };
        let shown = view.holders.iter().map(|holder| (holder.id.clone(), holder.token.unwrap())).collect();
        let known = self.holds.iter().map(|hold| (hold.claim.id.to_string(), hold.token.number)).collect();
        assert_eq!(sorted(shown), sorted(known));
        let shown: Vec<_> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
        let known: Vec<_> = self.queue.iter().map(|waiter| waiter.claim.id.to_string()).collect();
        assert_eq!(shown[..known.len().min(shown.len())], known);
        assert_eq!(shown.len(), known.len() + self.silent.len());
    }

    /// Checks a new grant: its tokens are larger than all before, it excludes what it must, it overtook no claim.
    fn granted(&mut self, claim: &Claim, grant: &Grant, newcomers_too: bool) {
        assert!(grant.token.number > self.newest, "tokens grow");
        self.newest = grant.token.number + u64::from(grant.tokens) - 1;
        assert!(self.fits(claim.mode), "{claim:?} beside {:?}", self.holds);
        match self.position(claim.id) {
            Some(0) => drop(self.queue.remove(0)),
            Some(position) => panic!("overtook {position} others"),
            None => {
                assert!(newcomers_too && self.queue.is_empty(), "a new claim overtook the queue");
                assert!(!self.is_dead(claim.id), "a late request of an ended claim");
            }
        }
        let until = self.now.after(grant.ttl.unwrap());
        let (token, tokens, kind) = (grant.token, grant.tokens, Kind::Held);
        self.holds.push(JudgedHold { claim: claim.clone(), token, tokens, until, kind });
    }

    fn confirm(&mut self, claim: &Claim) {
        let until = self.now.after(claim.ttl);
        let hold = self
            .holds
            .iter_mut()
            .find(|hold| hold.claim.id == claim.id && !matches!(hold.kind, Kind::MinHold));
        let hold = hold.unwrap();
        hold.until = hold.until.max(until);
        hold.kind = Kind::Held;
    }

    /// The position at which a waiting claim must be now.
    fn position_of(&mut self, claim: &Claim, how: How, was_requeued: bool) -> usize {
        let until = self.now.after(entry_life(claim.ttl));
        if let Some(position) = self.position(claim.id) {
            self.queue[position].until = until;
            return position;
        }
        assert!(was_requeued || (how == How::Create && claim.may_queue && !self.is_dead(claim.id)));
        self.queue.push(JudgedWaiter { claim: claim.clone(), until });
        self.queue.len() - 1
    }

    fn position(&self, id: ClaimId) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.claim.id == id)
    }

    fn add_tombstone(&mut self, id: ClaimId) {
        self.dead.insert(id, self.now.after(REQUEST_LIFE));
    }

    fn is_dead(&self, id: ClaimId) -> bool {
        self.dead.get(&id).is_some_and(|&until| until > self.now)
    }

    /// Whether this mode is compatible with all current holds, by the words of the contract.
    fn fits(&self, mode: Mode) -> bool {
        let modes = || self.holds.iter().map(|hold| hold.claim.mode);
        let taken: u32 =
            modes().map(|mode| if let Mode::Permits { count, .. } = mode { count } else { 0 }).sum();
        modes().all(|other| match (mode, other) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permits { count, limit }, Mode::Permits { limit: same, .. }) => {
                limit == same && taken + count <= limit
            }
            _ => false,
        })
    }
}
