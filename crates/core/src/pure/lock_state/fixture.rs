//! A lock state of one name with its clock, tombstones and tokens, for tests.

use std::time::Duration;

use super::{BrokenHold, LockState, Pushed, Refusal, StepContext, Tombstones};
use crate::{
    Answer, Claim, ClaimId, Grant, How, Instant, Lineage, Loss, Mode, Name, Previous, Release, Token,
    Upgraded, View,
};

pub(super) const REQUEST_LIFE: Duration = Duration::from_secs(1);
pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(2);

/// A lock state in which the client of each claim is the number of that claim. The tests name a claim by its number.
pub(super) struct Fixture {
    pub(super) lock: LockState<u8>,
    pub(super) tombstones: Tombstones,
    pub(super) now: Instant,
    /// The grants that the last step pushed.
    pub(super) pushed: Vec<Pushed<u8>>,
    /// The last token minted.
    last_token: u64,
    /// Whether the lock state is saved and restored before each step.
    pub(super) restores: bool,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            lock: LockState::new(),
            tombstones: Tombstones::default(),
            now,
            pushed: Vec::new(),
            last_token: 0,
            restores: false,
        }
    }

    /// Advances the clock.
    pub(super) fn advance(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
    }

    /// Runs one step of the lock state.
    pub(super) fn step<R>(
        &mut self,
        verb: impl FnOnce(&mut LockState<u8>, &mut StepContext<'_, u8>) -> R,
    ) -> R {
        if self.restores {
            self.lock = LockState::restore(self.lock.save(), token(0).lineage);
        }
        let last_token = &mut self.last_token;
        let mut mint = |tokens: u32| {
            let number = *last_token + 1;
            *last_token += u64::from(tokens);
            token(number)
        };
        let mut step = StepContext::new(self.now, REQUEST_LIFE, &mut self.tombstones, &mut mint);
        let answer = verb(&mut self.lock, &mut step);
        self.pushed = step.pushed;
        answer
    }

    /// Calls `claim`. The last byte of the id is the number of the claim, which is also its client.
    pub(super) fn call(&mut self, claim: &Claim, how: How) -> Result<Answer, Refusal> {
        self.step(|lock, step| lock.claim(claim, how, &claim.id.0[15], step))
    }

    /// Calls `claim` with `How::Create`.
    pub(super) fn create(&mut self, number: u8, mode: Mode) -> Answer {
        self.call(&claim(number, mode), How::Create).unwrap()
    }

    /// Creates a claim; fails unless it is granted.
    pub(super) fn hold(&mut self, number: u8, mode: Mode) -> Grant {
        held(self.create(number, mode))
    }

    /// Creates a claim, and returns how many are ahead; fails unless it waits.
    pub(super) fn wait(&mut self, number: u8, mode: Mode) -> u32 {
        ahead(self.create(number, mode))
    }

    /// Calls `claim` with `How::Ask`.
    pub(super) fn ask(&mut self, number: u8) -> Answer {
        self.call(&claim(number, Mode::Exclusive), How::Ask).unwrap()
    }

    pub(super) fn renew(&mut self, number: u8, token: Token) -> Result<(), Loss> {
        self.step(|lock, step| lock.renew(id(number), token, TTL, step))
    }

    pub(super) fn downgrade(&mut self, number: u8, token: Token) -> Result<(), Loss> {
        self.step(|lock, step| lock.downgrade(id(number), token, TTL, step))
    }

    /// Upgrades a hold by the claim with the number `new`.
    pub(super) fn upgrade(&mut self, number: u8, token: Token, new: u8) -> Upgraded {
        let claim = claim(new, Mode::Exclusive);
        self.step(|lock, step| lock.upgrade(id(number), token, &claim, &new, step))
    }

    /// Releases a claim; with a token, a hold.
    pub(super) fn release(&mut self, number: u8, token: impl Into<Option<Token>>) -> bool {
        self.send_release(&release(number, token.into()))
    }

    /// Calls `release` with this request.
    pub(super) fn send_release(&mut self, release: &Release) -> bool {
        self.step(|lock, step| lock.release(release, step))
    }

    pub(super) fn break_hold(&mut self, token_number: u64, force: bool) -> Option<BrokenHold<u8>> {
        self.step(|lock, step| lock.break_hold(token_number, force, step))
    }

    pub(super) fn settle(&mut self) {
        self.step(|lock, step| lock.settle(step));
    }

    /// The clients of the grants that the last step pushed.
    pub(super) fn notified(&self) -> Vec<u8> {
        self.pushed.iter().map(|pushed| pushed.client).collect()
    }

    pub(super) fn view(&self) -> View {
        self.lock.view(&name(), "key", self.now)
    }
}

/// The grant of an answer that has to be "held".
pub(super) fn held(answer: Answer) -> Grant {
    match answer {
        Answer::Held(grant) => grant,
        other => panic!("not held: {other:?}"),
    }
}

/// How many claims are ahead, by an answer that has to be "waiting".
pub(super) fn ahead(answer: Answer) -> u32 {
    match answer {
        Answer::Waiting(hint) => hint.ahead.unwrap(),
        other => panic!("not waiting: {other:?}"),
    }
}

pub(super) fn name() -> Name {
    Name::new("n").unwrap()
}

pub(super) fn id(number: u8) -> ClaimId {
    ClaimId(u128::from(number).to_be_bytes())
}

/// The token with this number. All tokens have the same lineage.
pub(super) fn token(number: u64) -> Token {
    Token { lineage: Lineage::new(7), number }
}

/// A claim with ordinary options.
pub(super) fn claim(number: u8, mode: Mode) -> Claim {
    Claim {
        id: id(number),
        name: name(),
        mode,
        ttl: TTL,
        claim_time: CLAIM_TIME,
        may_queue: true,
        tokens: 1,
        owner: format!("owner {number}").into(),
        stops_on_term: false,
    }
}

/// A clean release.
pub(super) fn release(number: u8, token: Option<Token>) -> Release {
    Release {
        id: id(number),
        name: name(),
        mode: Mode::Exclusive,
        token,
        ended: Previous::Clean,
        min_hold: None,
    }
}
