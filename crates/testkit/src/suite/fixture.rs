//! What a case works with: names, ids, clients, and a list of all it must clean up.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Fault, Grant, Hint, Hold, How, Mode, Modes, Name, Previous, Profile,
    Release, Released,
};

use super::{Disturbance, Harness, case::Outcome};
use crate::{
    claims,
    stopwatch::Stopwatch,
    suite::case::{Stop, want},
};

/// The time for which a case that needs no expiry claims: far longer than any case runs.
const LONG: Duration = Duration::from_secs(30);
/// The time for which a case that waits for the expiry claims, where the engine allows it. On a machine that is too slow for
/// it, the case runs again with more.
const SHORT: Duration = Duration::from_secs(1);
/// Over a ttl, until a lapsed hold must be gone: engines may count in coarse ticks.
const GRACE: Duration = Duration::from_millis(250);
/// How much of the time that an engine waits for an answer a machine may withhold: engines wait for 3 s and longer.
const WITHHELD: Duration = Duration::from_millis(500);
/// How often a claim is asked before its case fails: polled engines need some.
const MAX_ASKS: usize = 200;
/// How often a name is tried that must be free since a lease ran out, and the pause between two tries: the server may be
/// later than the clock where it gets no time, and then it answers the tries late too.
const MAX_TRIES: usize = 100;
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// The bench on which one case runs.
pub(super) struct Fixture<'a> {
    harness: &'a dyn Harness,
    profile: &'a Profile,
    prefix: String,
    made: RefCell<Vec<(Arc<dyn Engine>, Claim)>>,
    /// By how much short times are longer than usual.
    stretch: u32,
    /// The shortest time that the case gave to a hold or a name.
    shortest: Cell<Option<Duration>>,
    begun: Stopwatch,
    /// How long the case let time pass.
    passed: Cell<Duration>,
    /// Whether an answer did not come in time, or no connection.
    unanswered: Cell<bool>,
}

/// One client in one case.
pub(super) struct Client<'a> {
    /// The engine itself.
    pub(super) engine: Arc<dyn Engine>,
    fixture: &'a Fixture<'a>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(
        harness: &'a dyn Harness,
        profile: &'a Profile,
        run: u64,
        case: &str,
        stretch: u32,
    ) -> Self {
        let prefix = format!("conformance-{:016x}-{case}", run.wrapping_add(stretch.into()));
        Self {
            harness,
            profile,
            prefix,
            made: RefCell::default(),
            stretch,
            shortest: Cell::default(),
            begun: Stopwatch::start(),
            passed: Cell::default(),
            unanswered: Cell::default(),
        }
    }

    /// Whether the machine took so long for the requests of the case that a short time may have run out too early, or withheld
    /// much of the time for an answer that did not come.
    pub(super) fn was_slow(&self) -> bool {
        let took = self.begun.elapsed().saturating_sub(self.passed.get());
        let withheld = self.begun.elapsed().saturating_sub(self.begun.given());
        self.shortest.get().is_some_and(|shortest| took > shortest / 4)
            || self.unanswered.get() && withheld > WITHHELD
    }

    /// Takes note of an engine's error.
    fn note_error(&self, error: &EngineError) {
        if matches!(error.fault, Fault::Retry | Fault::Unknown) {
            self.unanswered.set(true);
        }
    }

    pub(super) fn profile(&self) -> &Profile {
        self.profile
    }

    /// Whether names can be claimed so.
    pub(super) fn grants(&self, mode: Mode) -> bool {
        mode == Mode::Exclusive || self.profile.modes == Modes::All
    }

    /// This mode, or an exclusive one where that is the only one.
    pub(super) fn or_exclusive(&self, mode: Mode) -> Mode {
        if self.grants(mode) { mode } else { Mode::Exclusive }
    }

    /// A name of this case and run alone, ending in `suffix`.
    pub(super) fn name(&self, suffix: &str) -> Name {
        Name::new(&format!("{}{suffix}", self.prefix)).expect("names of cases are short and plain")
    }

    pub(super) fn takes(&self, name: &Name) -> bool {
        self.harness.takes(name)
    }

    pub(super) async fn client(&'a self) -> Client<'a> {
        Client { engine: self.harness.client().await, fixture: self }
    }

    /// An exclusive claim of `name` that may queue and lasts long.
    pub(super) fn claim(&self, name: &Name, mode: Mode) -> Claim {
        let ttl = LONG.clamp(*self.profile.ttl.start(), *self.profile.ttl.end());
        Claim { mode, owner: "conformance".into(), ..claims::exclusive(name.as_str(), ttl) }
    }

    /// The same, leaving nothing when the name is taken.
    pub(super) fn attempt(&self, name: &Name, mode: Mode) -> Claim {
        Claim { may_queue: false, ..self.claim(name, mode) }
    }

    /// The same, but short, for cases that wait for the expiry.
    pub(super) fn short(&self, name: &Name, mode: Mode) -> Claim {
        let ttl = self.short_time(SHORT.max(*self.profile.ttl.start()));
        Claim { ttl, claim_time: ttl, ..self.claim(name, mode) }
    }

    /// A time whose end the case waits for.
    pub(super) fn short_time(&self, time: Duration) -> Duration {
        let time = time * self.stretch;
        self.shortest.set(Some(self.shortest.get().map_or(time, |shortest| shortest.min(time))));
        time
    }

    /// How many claims wait in the largest case.
    pub(super) fn crowd(&self) -> usize {
        self.harness.crowd()
    }

    /// How long to wait for what may never come.
    pub(super) fn patience(&self) -> Duration {
        self.harness.patience()
    }

    pub(super) async fn advance(&self, time: Duration) {
        self.passed.set(self.passed.get() + time);
        self.harness.advance(time).await;
    }

    /// A name that one client holds and another waits for, both exclusively.
    pub(super) async fn contended(&self) -> Outcome<Contended<'_>> {
        let (one, other, name) = (self.client().await, self.client().await, self.name(""));
        let (holder, waiter) = (self.claim(&name, Mode::Exclusive), self.claim(&name, Mode::Exclusive));
        let grant = one.hold(&holder).await?;
        other.blocked(&waiter).await?;
        Ok(Contended { one, other, holder, grant, waiter })
    }

    /// Lets pass what a grant has at most left, and a little.
    pub(super) async fn outlive(&self, grant: &Grant) -> Outcome {
        let ttl = want!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
        self.advance(ttl + GRACE).await;
        Ok(())
    }

    /// Disturbs the system, or ends the case as skipped.
    pub(super) async fn disturb(&self, kind: Disturbance) -> Outcome {
        if self.harness.disturb(kind).await {
            return Ok(());
        }
        Err(Stop::Skip(format!("the harness cannot do {kind:?}")))
    }

    /// Releases every claim of the case by id and tells where that failed. The clients live as long as the bench: some end what
    /// lapses on the server.
    pub(super) async fn clean_up(&self) -> Vec<String> {
        let made = self.made.borrow().clone();
        let mut left = Vec::new();
        for (engine, claim) in &made {
            let order = [release_of(claim, None)];
            if let [Released::Unknown(error)] = &engine.release(&order).await[..] {
                left.push(format!("the outcome of the clean-up of {}: {error:?}", claim.id));
            }
        }
        left
    }
}

/// A name with a holder and a waiter: how most cases of the line and of news begin.
pub(super) struct Contended<'a> {
    pub(super) one: Client<'a>,
    pub(super) other: Client<'a>,
    pub(super) holder: Claim,
    pub(super) grant: Grant,
    pub(super) waiter: Claim,
}

impl Client<'_> {
    /// Sends the claim; an error of a healthy engine fails the case.
    pub(super) async fn ask(&self, claim: &Claim, how: How) -> Outcome<Answer> {
        self.send(claim, how).await.map_err(|error| {
            self.fixture.note_error(&error);
            Stop::Fail(format!("{how:?} of {}: {error:?}", claim.name))
        })
    }

    /// Sends the claim, for cases that expect an error.
    pub(super) async fn send(&self, claim: &Claim, how: How) -> Result<Answer, leasehold_core::EngineError> {
        self.remember(claim);
        self.engine.claim(claim, how).await
    }

    /// Makes the clean-up release this claim.
    pub(super) fn remember(&self, claim: &Claim) {
        let mut made = self.fixture.made.borrow_mut();
        if !made.iter().rev().any(|(_, known)| known.id == claim.id) {
            made.push((Arc::clone(&self.engine), claim.clone()));
        }
    }

    /// The claim must be granted at its first request.
    pub(super) async fn hold(&self, claim: &Claim) -> Outcome<Grant> {
        let answer = self.ask(claim, How::Create).await?;
        Ok(
            want!(answer, Answer::Held(grant) => grant, "{} is free and was not granted to {}", claim.name, claim.mode),
        )
    }

    /// The claim must stand in line or be told "taken" now.
    pub(super) async fn blocked(&self, claim: &Claim) -> Outcome<Hint> {
        let answer = self.ask(claim, How::Create).await?;
        let hint = match answer {
            Answer::Waiting(hint) if claim.may_queue => hint,
            // Engines without a line answer "taken" always.
            Answer::Taken(hint) if !claim.may_queue || !self.fixture.profile.fifo => hint,
            other => {
                return Err(Stop::Fail(format!(
                    "{} is not free, yet {} got {other:?}",
                    claim.name, claim.mode
                )));
            }
        };
        Ok(hint)
    }

    /// A blocked claim must be granted now, at the latest after some polls.
    pub(super) async fn granted(&self, claim: &Claim) -> Outcome<Grant> {
        let mut how = How::Ask;
        for _ in 0..MAX_ASKS {
            match self.ask(claim, how).await? {
                Answer::Held(grant) => return Ok(grant),
                Answer::Waiting(_) => how = How::Ask,
                // Nothing stands on the engine for this claim: it has to be made again.
                Answer::Taken(_) => how = How::Create,
                Answer::Gone if !self.fixture.profile.fifo && how == How::Ask => how = How::Create,
                Answer::Gone => {
                    return Err(Stop::Fail(format!("the waiting claim of {} is gone", claim.name)));
                }
            }
            self.fixture.advance(*self.fixture.profile.poll.start()).await;
        }
        Err(Stop::Fail(format!(
            "{} became free, yet {} was not granted after {MAX_ASKS} asks",
            claim.name, claim.mode
        )))
    }

    /// The claim must stand in line still.
    pub(super) async fn waits(&self, claim: &Claim) -> Outcome<Hint> {
        let answer = self.ask(claim, How::Ask).await?;
        Ok(
            want!(answer, Answer::Waiting(hint) => hint, "{} should stand in line for {}", claim.mode, claim.name),
        )
    }

    /// Releases one claim, by token too where it holds.
    pub(super) async fn release(&self, claim: &Claim, grant: Option<&Grant>) -> Outcome<Released> {
        self.release_as(&release_of(claim, grant)).await
    }

    /// The release must find something.
    pub(super) async fn free(&self, claim: &Claim, grant: &Grant) -> Outcome {
        want!(self.release(claim, Some(grant)).await?, Released::Freed => (), "the release of a hold of {}", claim.name);
        Ok(())
    }

    /// Carries out one release.
    pub(super) async fn release_as(&self, order: &Release) -> Outcome<Released> {
        let mut answers = self.engine.release(std::slice::from_ref(order)).await;
        match (answers.pop(), answers.is_empty()) {
            (Some(Released::Unknown(error)), _) => {
                self.fixture.note_error(&error);
                Err(Stop::Fail(format!("release of {}: {error:?}", order.name)))
            }
            (Some(answer), true) => Ok(answer),
            _ => Err(Stop::Fail("one release was not answered by one answer".into())),
        }
    }

    /// The claim must be granted now that a lease ran out, at the latest after some tries.
    pub(super) async fn hold_in_time(&self, claim: &Claim) -> Outcome<Grant> {
        for _ in 1..MAX_TRIES {
            if let Answer::Held(grant) = self.ask(claim, How::Create).await? {
                return Ok(grant);
            }
            self.fixture.advance(TRY_INTERVAL).await;
        }
        self.hold(claim).await
    }

    /// As [`finds_free`](Self::finds_free), now that a lease ran out.
    pub(super) async fn finds_free_in_time(&self, name: &Name) -> Outcome<Grant> {
        let claim = self.fixture.attempt(name, Mode::Exclusive);
        let grant = self.hold_in_time(&claim).await?;
        self.free(&claim, &grant).await?;
        Ok(grant)
    }

    /// A claim of another id must find the name free, take it, and let it go again.
    pub(super) async fn finds_free(&self, name: &Name) -> Outcome<Grant> {
        let claim = self.fixture.attempt(name, Mode::Exclusive);
        let grant = self.hold(&claim).await?;
        self.free(&claim, &grant).await?;
        Ok(grant)
    }

    /// A claim of another id must find the name taken.
    pub(super) async fn finds_taken(&self, name: &Name) -> Outcome {
        self.blocked(&self.fixture.attempt(name, Mode::Exclusive)).await.map(drop)
    }
}

/// The order to release a claim, comparing the token of its grant when there is one.
pub(super) fn release_of(claim: &Claim, grant: Option<&Grant>) -> Release {
    Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: grant.map(|grant| grant.token),
        ended: Previous::Clean,
        keep: None,
    }
}

/// The hold of a granted claim, as `renew` takes it.
pub(super) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}
