//! The minimum hold time: a name stays taken after its release (`--at-least`).

use std::{collections::VecDeque, time::Duration};

use leasehold_core::{
    Claim, Grant, Instant, Mode, Notification, Profile, Release, Released, Wait, WaitAction,
};

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match},
    fixture::{Client, Fixture, release_of},
};

pub(super) const CASES: &[Case] = &[
    case!(a_name_is_taken_for_its_minimum_hold, skip = needs_min_hold),
    case!(a_waiter_is_granted_after_the_minimum_hold, skip = needs_min_hold),
    case!(each_waiter_is_granted_when_the_minimum_hold_ends, skip = needs_min_hold),
    case!(a_release_without_a_hold_starts_no_minimum_hold, skip = needs_min_hold),
];

/// The minimum hold time of the cases, unless the machine is too slow for it.
const MIN_HOLD: Duration = Duration::from_secs(1);
/// How long after the end of the minimum hold the name may still be taken.
const GRACE: Duration = Duration::from_millis(250);

/// How many waiters are granted the name one after the other.
const WAITERS: usize = 8;
/// The minimum hold time of each of these waiters.
const MIN_HOLD_EACH: Duration = Duration::from_millis(100);
/// How late each grant may be. Polled engines poll several times a second.
const LATE: Duration = Duration::from_millis(100);
/// How often the waiters read notifications and check the time.
const STEP: Duration = Duration::from_millis(10);

fn needs_min_hold(profile: &Profile) -> Option<&'static str> {
    (!profile.supports_min_hold).then_some("the engine has no minimum hold time")
}

async fn a_name_is_taken_for_its_minimum_hold(fixture: &Fixture<'_>) -> Outcome {
    let min_hold = fixture.short_time(MIN_HOLD);
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let release_request = Release { min_hold: Some(min_hold), ..release_of(&claim, Some(&grant)) };
    expect_match!(
        client_a.send_release(&release_request).await?,
        Released::Freed => (),
        "a release with a minimum hold"
    );
    let hint = client_b.claim_blocked(&fixture.try_claim(&claim.name, Mode::Exclusive)).await?;
    ensure!(
        hint.ask_in.is_some_and(|ask_in| ask_in <= min_hold),
        "with a minimum hold of {min_hold:?} the hint is {:?}",
        hint.ask_in
    );
    let shared = fixture.mode_or_exclusive(Mode::Shared);
    client_a.claim_blocked(&fixture.try_claim(&claim.name, shared)).await?;
    // A repeated release, sent because its answer was lost, must not end the minimum hold.
    expect_match!(
        client_a.release(&claim, Some(&grant)).await?,
        Released::NotThere | Released::Freed => (),
        "a repeated release"
    );
    client_a.expect_taken(&claim.name).await?;
    fixture.advance(min_hold + GRACE).await;
    let next = client_b.expect_free_soon(&claim.name).await?;
    ensure!(next.token > grant.token, "the token {} follows {}", next.token, grant.token);
    Ok(())
}

async fn a_waiter_is_granted_after_the_minimum_hold(fixture: &Fixture<'_>) -> Outcome {
    let min_hold = fixture.short_time(MIN_HOLD);
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    client_a.send_release(&Release { min_hold: Some(min_hold), ..release_of(&claim, Some(&grant)) }).await?;
    if fixture.profile().fifo {
        client_b.ask_still_queued(&waiter).await?;
    }
    fixture.advance(min_hold + GRACE).await;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn each_waiter_is_granted_when_the_minimum_hold_ends(fixture: &Fixture<'_>) -> Outcome {
    let clients = [fixture.client().await, fixture.client().await];
    let holder = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let mut grant = clients[0].acquire(&holder).await?;
    let mut queue = VecDeque::new();
    for index in 0..WAITERS {
        let claim = fixture.claim(&holder.name, Mode::Exclusive);
        queue.push_back(Waiter::new(fixture, &clients[(index + 1) % clients.len()], claim).await?);
    }
    let (mut now, mut last_holder) = (Instant::from_nanos(0), (holder, &clients[0]));
    while !queue.is_empty() {
        let release_request =
            Release { min_hold: Some(MIN_HOLD_EACH), ..release_of(&last_holder.0, Some(&grant)) };
        expect_match!(
            last_holder.1.send_release(&release_request).await?,
            Released::Freed => (),
            "a release with a minimum hold"
        );
        let (index, next_grant) = loop {
            // The time is counted in steps, which take longer than their length on a slow machine.
            let (expected, passed) = (WAITERS - queue.len() + 1, now.since(Instant::from_nanos(0)));
            ensure!(
                passed <= (MIN_HOLD_EACH + LATE) * expected as u32,
                "{expected} waiters with a minimum hold of {MIN_HOLD_EACH:?} each are not all granted after {passed:?}"
            );
            fixture.advance(STEP).await;
            now = now.after(STEP);
            if let Some(granted) = poll_waiters(&clients, &mut queue, now).await? {
                break granted;
            }
        };
        let Some(waiter) = queue.remove(index) else {
            return Err(Stop::Fail("the queue of the case is empty".into()));
        };
        (last_holder, grant) = ((waiter.claim, waiter.client), next_grant);
    }
    last_holder.1.release_hold(&last_holder.0, &grant).await
}

/// A claim that waits as core makes claims wait: it asks after a notification, or when an interval has passed.
struct Waiter<'a> {
    claim: Claim,
    client: &'a Client<'a>,
    wait: Wait,
    /// When it asks next if no notification comes.
    due: Instant,
}

impl<'a> Waiter<'a> {
    async fn new(fixture: &Fixture<'_>, client: &'a Client<'a>, claim: Claim) -> Outcome<Self> {
        let due = Instant::from_nanos(0);
        let mut waiter = Self { wait: Wait::new(fixture.profile(), None), claim, client, due };
        match waiter.send_claim(due).await? {
            None => Ok(waiter),
            Some(grant) => Err(Stop::Fail(format!("a name that is held was granted: {grant:?}"))),
        }
    }

    async fn send_claim(&mut self, now: Instant) -> Outcome<Option<Grant>> {
        let answer = self.client.send_claim(&self.claim, self.wait.how()).await?;
        match self.wait.answered(Ok(answer), now, u32::MAX) {
            WaitAction::Held(grant) => Ok(Some(grant)),
            WaitAction::Call { at, .. } => {
                self.due = at;
                Ok(None)
            }
            other => Err(Stop::Fail(format!("the waiting claim of {}: {other:?}", self.claim.name))),
        }
    }
}

/// Reads notifications and sends the asks that are due. Returns the index and the grant of a waiter that was granted.
async fn poll_waiters(
    clients: &[Client<'_>],
    queue: &mut VecDeque<Waiter<'_>>,
    now: Instant,
) -> Outcome<Option<(usize, Grant)>> {
    for client in clients {
        let batch =
            tokio::time::timeout(Duration::ZERO, client.engine.notifications()).await.unwrap_or_default();
        for waiter in queue.iter_mut() {
            let concerns = |notification: &Notification| match notification {
                Notification::Granted { id, .. } | Notification::Recheck { id, .. } => *id == waiter.claim.id,
                Notification::AskAll => true,
                _ => false,
            };
            if batch.iter().any(concerns) {
                waiter.due = now;
            }
        }
    }
    for (index, waiter) in queue.iter_mut().enumerate() {
        if waiter.due <= now
            && let Some(grant) = waiter.send_claim(now).await?
        {
            return Ok(Some((index, grant)));
        }
    }
    Ok(None)
}

async fn a_release_without_a_hold_starts_no_minimum_hold(fixture: &Fixture<'_>) -> Outcome {
    let min_hold = fixture.short_time(MIN_HOLD);
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let unknown = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let release_request = Release { min_hold: Some(min_hold), ..release_of(&unknown, None) };
    expect_match!(
        client_a.send_release(&release_request).await?,
        Released::NotThere => (),
        "a release with a minimum hold of an unknown claim"
    );
    client_b.expect_free(&unknown.name).await.map(drop)
}
