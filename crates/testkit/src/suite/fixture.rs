//! The setup of a case: names, ids, clients, and a list of all claims to clean up.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    sync::Arc,
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Fault, Grant, Hint, Hold, How, Mode, Modes, Name, Previous, Profile,
    Release, Released, View, WaiterView,
};

use super::{Disturbance, Harness, Stored, case::Outcome};
use crate::{
    claims,
    stopwatch::Stopwatch,
    suite::case::{Stop, expect_match},
};

/// The lease time of cases that need no expiry: far longer than such a case takes on a machine that is not slow.
const LONG: Duration = Duration::from_secs(30);
/// The lease time of cases that wait for the expiry, if the engine allows such a short lease. If the machine is too
/// slow for it, the case runs again with a longer time.
const SHORT: Duration = Duration::from_secs(1);
/// How long after the end of its ttl a lapsed hold may still be there. Engines may count in coarse ticks.
const GRACE: Duration = Duration::from_millis(250);
/// If the machine withholds more time than this from a case, it may have caused the timeout of a request. Engines wait
/// 3 s or longer for an answer.
const WITHHELD: Duration = Duration::from_millis(500);
/// The largest number of asks of one claim; after them the case fails. Polled engines need several asks.
const MAX_ASKS: usize = 200;
/// The largest number of tries for a name that must be free because a lease ended. A server that gets no processor time
/// may expire leases late. Such a server also answers the tries late, so a number limits the tries better than a time.
const MAX_TRIES: usize = 100;
/// How often the release of a claim at the end of a case is sent at most.
const CLEAN_UP_TRIES: usize = 5;
/// The pause between two tries for a name that must be free.
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// The setup of one case.
pub(super) struct Fixture<'a> {
    harness: &'a dyn Harness,
    profile: &'a Profile,
    prefix: String,
    /// The claims that the case made, which are released at its end.
    claims_made: RefCell<Vec<(Arc<dyn Engine>, Claim)>>,
    /// The names whose memos the case wrote. At its end these memos end soon.
    pub(super) memo_names: RefCell<BTreeSet<Name>>,
    /// The factor by which the short times of this run of the case are longer than usual.
    time_factor: u32,
    /// The shortest lease or minimum hold time of the case.
    shortest: Cell<Option<Duration>>,
    /// Measures from the start of the case.
    stopwatch: Stopwatch,
    /// How much time the case has let pass on purpose.
    advanced: Cell<Duration>,
    /// Whether an answer or a connection did not come in time.
    had_timeout: Cell<bool>,
}

/// One client in one case.
pub(super) struct Client<'a> {
    /// The engine itself.
    pub(super) engine: Arc<dyn Engine>,
    pub(super) fixture: &'a Fixture<'a>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(
        harness: &'a dyn Harness,
        profile: &'a Profile,
        run_id: u64,
        case: &str,
        time_factor: u32,
    ) -> Self {
        let prefix = format!("conformance-{:016x}-{case}", run_id.wrapping_add(time_factor.into()));
        Self {
            harness,
            profile,
            prefix,
            claims_made: RefCell::default(),
            memo_names: RefCell::default(),
            time_factor,
            shortest: Cell::default(),
            stopwatch: Stopwatch::start(),
            advanced: Cell::default(),
            had_timeout: Cell::default(),
        }
    }

    /// Whether a slow machine can be the cause of the failure of the case: a short time limit can have passed before
    /// the case was ready, or an answer did not come in time and this process did not run for much of that time.
    pub(super) fn was_slow(&self) -> bool {
        let own_time = self.stopwatch.elapsed().saturating_sub(self.advanced.get());
        let withheld = self.stopwatch.elapsed().saturating_sub(self.stopwatch.given());
        self.shortest.get().is_some_and(|shortest| own_time > shortest / 4)
            || self.had_timeout.get() && withheld > WITHHELD
    }

    /// Records an error of the engine, which may be due to a slow machine.
    pub(super) fn note_error(&self, error: &EngineError) {
        if matches!(error.fault, Fault::Retry | Fault::Unknown) {
            self.had_timeout.set(true);
        }
    }

    pub(super) fn profile(&self) -> &Profile {
        self.profile
    }

    /// Whether names can be claimed in this mode on this engine.
    pub(super) fn grants(&self, mode: Mode) -> bool {
        mode == Mode::Exclusive || self.profile.modes == Modes::All
    }

    /// This mode, or an exclusive one if the engine has no other.
    pub(super) fn mode_or_exclusive(&self, mode: Mode) -> Mode {
        if self.grants(mode) { mode } else { Mode::Exclusive }
    }

    /// A name that only this case and run use, ending in `suffix`.
    pub(super) fn name(&self, suffix: &str) -> Name {
        Name::new(&format!("{}{suffix}", self.prefix)).expect("names of cases are short and plain")
    }

    /// The view of a name after a release that had a waiter. If the client of the waiter grants the name, this waits
    /// until it has done so.
    pub(super) async fn view_after_release(&self, client: &Client<'_>, name: &Name) -> Outcome<View> {
        let limit = tokio::time::Instant::now() + self.patience();
        loop {
            let view = client.engine.show(name).await.map_err(|error| format!("show: {error:?}"))?;
            let is_granted = !view.holders.is_empty() || !self.harness.grants_after_releases();
            if is_granted || tokio::time::Instant::now() > limit {
                return Ok(view);
            }
            self.advance(TRY_INTERVAL).await;
        }
    }

    /// Ends the case as skipped unless the system stores this much of a hold.
    pub(super) fn need_stored(&self, needed: Stored) -> Outcome {
        match (self.stored(), needed) {
            (Stored::NamesOnly, _) => Err(Stop::Skip("the system does not store who holds a name".into())),
            (Stored::HashedNames, Stored::Everything) => {
                Err(Stop::Skip("the system stores only hashes of names".into()))
            }
            _ => Ok(()),
        }
    }

    /// Whether these claims are shown as waiters in this order, each with its mode if a mode is shown; only whether so
    /// many are, if the system does not store who waits.
    pub(super) fn is_queue<'c>(
        &self,
        shown: &[WaiterView],
        claims: impl ExactSizeIterator<Item = &'c Claim>,
    ) -> bool {
        let is_claim = |(waiter, claim): (&WaiterView, &Claim)| {
            waiter.id == claim.id.to_string() && waiter.mode.is_none_or(|mode| mode == claim.mode)
        };
        let is_counted = self.stored() == Stored::NamesOnly;
        shown.len() == claims.len() && (is_counted || shown.iter().zip(claims).all(is_claim))
    }

    /// What the system stores of a hold.
    pub(super) fn stored(&self) -> Stored {
        self.harness.stored()
    }

    pub(super) fn accepts(&self, name: &Name) -> bool {
        self.harness.accepts(name)
    }

    pub(super) async fn client(&'a self) -> Client<'a> {
        Client { engine: self.harness.client().await, fixture: self }
    }

    /// A claim of `name` in this mode that may queue and has a long lease.
    pub(super) fn claim(&self, name: &Name, mode: Mode) -> Claim {
        let ttl = LONG.clamp(*self.profile.ttl.start(), *self.profile.ttl.end());
        Claim { mode, owner: "conformance".into(), ..claims::exclusive(name.as_str(), ttl) }
    }

    /// A claim like [`claim`](Self::claim) that may not queue: it leaves nothing when the name is taken.
    pub(super) fn try_claim(&self, name: &Name, mode: Mode) -> Claim {
        Claim { may_queue: false, ..self.claim(name, mode) }
    }

    /// A claim like [`claim`](Self::claim) with a short lease, for cases that wait for the expiry.
    pub(super) fn short_lease_claim(&self, name: &Name, mode: Mode) -> Claim {
        let ttl = self.short_time(SHORT.max(*self.profile.ttl.start()));
        Claim { ttl, claim_time: ttl, ..self.claim(name, mode) }
    }

    /// The length to use for a time whose end the case waits for. It is longer than `time` if the case runs again
    /// because the machine was slow.
    pub(super) fn short_time(&self, time: Duration) -> Duration {
        let time = time * self.time_factor;
        self.shortest.set(Some(self.shortest.get().map_or(time, |shortest| shortest.min(time))));
        time
    }

    /// How many claims wait in the largest case.
    pub(super) fn max_waiters(&self) -> usize {
        self.harness.max_waiters()
    }

    /// The longest name that a client accepts, in bytes.
    pub(super) fn longest_name(&self) -> usize {
        self.harness.longest_name()
    }

    /// How long to wait for a notification that may never come.
    pub(super) fn patience(&self) -> Duration {
        self.harness.patience()
    }

    pub(super) async fn advance(&self, time: Duration) {
        self.advanced.set(self.advanced.get() + time);
        self.harness.advance(time).await;
    }

    /// A name with an exclusive holder and an exclusive waiter, of two clients.
    pub(super) async fn contended(&self) -> Outcome<Contended<'_>> {
        let (client_a, client_b, name) = (self.client().await, self.client().await, self.name(""));
        let (holder, waiter) = (self.claim(&name, Mode::Exclusive), self.claim(&name, Mode::Exclusive));
        let grant = client_a.acquire(&holder).await?;
        client_b.claim_blocked(&waiter).await?;
        Ok(Contended { client_a, client_b, holder, grant, waiter })
    }

    /// Lets the full lease time of a grant pass, and a little more.
    pub(super) async fn wait_until_expired(&self, grant: &Grant) -> Outcome {
        let ttl = expect_match!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
        self.advance(ttl + GRACE).await;
        Ok(())
    }

    /// Disturbs the system. Ends the case as skipped if the harness cannot produce this disturbance.
    pub(super) async fn disturb(&self, kind: Disturbance) -> Outcome {
        if self.harness.disturb(kind).await {
            return Ok(());
        }
        Err(Stop::Skip(format!("the harness cannot do {kind:?}")))
    }

    /// Releases every claim of the case by its id, and returns the failures. The clients live as long as the fixture,
    /// because on some engines a client itself ends lapsed holds on the server.
    pub(super) async fn clean_up(&'a self) -> Vec<String> {
        let claims_made = self.claims_made.borrow().clone();
        let mut failures = Vec::new();
        for (engine, claim) in &claims_made {
            let release_request = [release_of(claim, None)];
            let mut answers = engine.release(&release_request).await;
            for _ in 1..CLEAN_UP_TRIES {
                // On a busy machine the engine may not carry out a release within the time limit of one request.
                if !matches!(&answers[..], [Released::Unknown(error)] if error.fault == Fault::Retry) {
                    break;
                }
                answers = engine.release(&release_request).await;
            }
            if let [Released::Unknown(error)] = &answers[..] {
                failures.push(format!("the outcome of the clean-up of {}: {error:?}", claim.id));
            }
        }
        failures.extend(self.end_memos().await);
        failures
    }
}

/// A name with a holder and a waiter. Most cases about the queue and notifications begin with it.
pub(super) struct Contended<'a> {
    /// The client of the holder.
    pub(super) client_a: Client<'a>,
    /// The client of the waiter.
    pub(super) client_b: Client<'a>,
    pub(super) holder: Claim,
    pub(super) grant: Grant,
    pub(super) waiter: Claim,
}

impl Client<'_> {
    /// Sends the claim. An error of the engine fails the case.
    pub(super) async fn send_claim(&self, claim: &Claim, how: How) -> Outcome<Answer> {
        self.send_claim_unchecked(claim, how).await.map_err(|error| {
            self.fixture.note_error(&error);
            Stop::Fail(format!("{how:?} of {}: {error:?}", claim.name))
        })
    }

    /// Sends the claim, for cases that expect an error.
    pub(super) async fn send_claim_unchecked(
        &self,
        claim: &Claim,
        how: How,
    ) -> Result<Answer, leasehold_core::EngineError> {
        self.add_to_clean_up(claim);
        self.engine.claim(claim, how).await
    }

    /// Adds this claim to the claims that are released at the end of the case.
    pub(super) fn add_to_clean_up(&self, claim: &Claim) {
        let mut claims_made = self.fixture.claims_made.borrow_mut();
        if !claims_made.iter().rev().any(|(_, known)| known.id == claim.id) {
            claims_made.push((Arc::clone(&self.engine), claim.clone()));
        }
    }

    /// Asks for a claim until the engine answers, after its connections were cut: it may notice that only now.
    pub(super) async fn ask_until_connected(&self, claim: &Claim) -> Outcome<Answer> {
        for _ in 1..MAX_TRIES {
            match self.send_claim_unchecked(claim, How::Ask).await {
                Err(error) if error.fault == Fault::Retry => self.fixture.advance(TRY_INTERVAL).await,
                _ => break,
            }
        }
        self.send_claim(claim, How::Ask).await
    }

    /// Sends a claim, and fails the case unless the claim is granted at once.
    pub(super) async fn acquire(&self, claim: &Claim) -> Outcome<Grant> {
        let answer = self.send_claim(claim, How::Create).await?;
        Ok(expect_match!(
            answer,
            Answer::Held(grant) => grant,
            "{} is free and was not granted to {}", claim.name, claim.mode
        ))
    }

    /// Sends a claim, and fails the case unless the claim is queued or answered "taken".
    pub(super) async fn claim_blocked(&self, claim: &Claim) -> Outcome<Hint> {
        let answer = self.send_claim(claim, How::Create).await?;
        let hint = match answer {
            Answer::Waiting(hint) if claim.may_queue => hint,
            // Engines without a queue always answer "taken".
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

    /// Asks for a blocked claim repeatedly, with a pause of one poll interval. Fails the case unless the claim is
    /// granted within [`MAX_ASKS`] asks.
    pub(super) async fn ask_until_granted(&self, claim: &Claim) -> Outcome<Grant> {
        let mut how = How::Ask;
        for _ in 0..MAX_ASKS {
            match self.send_claim(claim, how).await? {
                Answer::Held(grant) => return Ok(grant),
                Answer::Waiting(_) => how = How::Ask,
                // The engine has no record of this claim, so it must be created again.
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

    /// Asks for a claim, and fails the case unless the claim is still queued.
    pub(super) async fn ask_still_queued(&self, claim: &Claim) -> Outcome<Hint> {
        let answer = self.send_claim(claim, How::Ask).await?;
        Ok(expect_match!(
            answer,
            Answer::Waiting(hint) => hint,
            "{} should be queued for {}", claim.mode, claim.name
        ))
    }

    /// Releases a claim. If the claim holds, the release has its token.
    pub(super) async fn release(&self, claim: &Claim, grant: Option<&Grant>) -> Outcome<Released> {
        self.send_release(&release_of(claim, grant)).await
    }

    /// Releases a hold, and fails the case unless the answer is "freed".
    pub(super) async fn release_hold(&self, claim: &Claim, grant: &Grant) -> Outcome {
        expect_match!(
            self.release(claim, Some(grant)).await?,
            Released::Freed => (),
            "the release of a hold of {}", claim.name
        );
        Ok(())
    }

    /// Sends one release.
    pub(super) async fn send_release(&self, release_request: &Release) -> Outcome<Released> {
        let mut answers = self.engine.release(std::slice::from_ref(release_request)).await;
        match (answers.pop(), answers.is_empty()) {
            (Some(Released::Unknown(error)), _) => {
                self.fixture.note_error(&error);
                Err(Stop::Fail(format!("release of {}: {error:?}", release_request.name)))
            }
            (Some(answer), true) => Ok(answer),
            _ => Err(Stop::Fail("one release was not answered by one answer".into())),
        }
    }

    /// Sends a claim of a name whose lease has ended, and repeats it while the name is taken. Fails the case unless the
    /// claim is granted within [`MAX_TRIES`] tries.
    pub(super) async fn acquire_soon(&self, claim: &Claim) -> Outcome<Grant> {
        for _ in 1..MAX_TRIES {
            if let Answer::Held(grant) = self.send_claim(claim, How::Create).await? {
                return Ok(grant);
            }
            self.fixture.advance(TRY_INTERVAL).await;
        }
        self.acquire(claim).await
    }

    /// Like [`expect_free`](Self::expect_free), for a name whose lease has ended: the claim is repeated.
    pub(super) async fn expect_free_soon(&self, name: &Name) -> Outcome<Grant> {
        let claim = self.fixture.try_claim(name, Mode::Exclusive);
        let grant = self.acquire_soon(&claim).await?;
        self.release_hold(&claim, &grant).await?;
        Ok(grant)
    }

    /// Fails the case unless a new claim is granted the name. Releases the new hold.
    pub(super) async fn expect_free(&self, name: &Name) -> Outcome<Grant> {
        let claim = self.fixture.try_claim(name, Mode::Exclusive);
        let grant = self.acquire(&claim).await?;
        self.release_hold(&claim, &grant).await?;
        Ok(grant)
    }

    /// Fails the case unless a new claim finds the name taken.
    pub(super) async fn expect_taken(&self, name: &Name) -> Outcome {
        self.claim_blocked(&self.fixture.try_claim(name, Mode::Exclusive)).await.map(drop)
    }
}

/// The release of a claim, with the token of its grant if there is one.
pub(super) fn release_of(claim: &Claim, grant: Option<&Grant>) -> Release {
    Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: grant.map(|grant| grant.token),
        ended: Previous::Clean,
        min_hold: None,
    }
}

/// The hold of a granted claim, as `renew` needs it.
pub(super) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}
