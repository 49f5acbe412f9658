//! Judges a run: with the checker of the testkit, and by the true state that only a model knows.

use std::{any::Any, fmt, sync::atomic::AtomicUsize, time::Duration};

use leasehold_core::lock_state::entry_life;
use leasehold_testkit::check::{self, Invariant, Terms};

use crate::{
    client::{ANSWER_LIMIT, CLAIM_TIME, REQUEST_TIMEOUT, SLOWEST_POLL},
    journal::Record,
    notice,
    plan::{Fault, Plan, Protocol},
    server::REQUEST_LIFE,
};

/// The longest single sleep of the keeper, by the world's clock. It is one second by the keeper's own clock, and the
/// slowest clock of a plan loses a fifth.
const MAX_NAP: Duration = Duration::from_millis(1250);

/// The longest pause of core before a release is sent again.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A violation.
#[derive(Clone, Debug)]
pub struct Complaint {
    /// The violated promise. Failures of one kind have the same text here.
    pub kind: String,
    /// The details.
    pub text: String,
}

impl Complaint {
    pub(crate) fn new(kind: impl Into<String>, text: impl Into<String>) -> Self {
        Self { kind: kind.into(), text: text.into() }
    }

    /// The violation when the code under test panicked.
    #[must_use]
    pub(crate) fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Self::new("panic", text)
    }

    /// The violation when no event can happen any more, although tasks are unfinished.
    #[must_use]
    pub(crate) fn stuck(left: &[AtomicUsize]) -> Self {
        Self::new("stuck", format!("tasks that are not done, by client: {left:?}"))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// Judges the history of a run.
pub(crate) fn judge(plan: &Plan, record: &mut Record, complaints: &mut Vec<Complaint>) {
    let promise = plan.promise();
    let Record { history, tally, doubts, .. } = record;
    let report = check::check(history, &terms(plan));
    tally.checked = report.verdicts.iter().map(|verdict| verdict.checked).sum();
    for verdict in report.verdicts.iter().filter(|verdict| verdict.violations > 0) {
        let is_promised = match verdict.invariant {
            Invariant::Exclusion => promise.exclusion,
            Invariant::Deadlines => promise.deadlines,
            Invariant::Tokens => promise.tokens,
            Invariant::OneOrder | Invariant::Taken => promise.exclusion && !plan.breaks(),
            _ => true,
        };
        if is_promised {
            let examples: String = verdict.examples.iter().map(ToString::to_string).collect();
            complaints.push(Complaint::new(
                verdict.invariant.to_string(),
                format!("{} violations\n{examples}", verdict.violations),
            ));
        }
    }
    // If two writers may have the same token, the fence cannot tell one from the other, and updates may be lost.
    if promise.new_tokens && tally.fenced.lost > 0 {
        let text = format!("{} acknowledged updates are not there", tally.fenced.lost);
        complaints.push(Complaint::new("I5 the fence", text));
    }
    if promise.deadlines && promise.new_tokens {
        complaints.extend(notice::complaints(history, std::mem::take(doubts)));
    }
}

/// How much longer a request may take if it is sent a second time. If the request and its answer are both slow, they
/// may take longer than the client waits, by a client's clock that is a fifth too fast. In this case the client sends
/// the request again.
fn resend_delay(plan: &Plan) -> Duration {
    let slow = plan.delay.1 * 20;
    if slow * 6 / 5 > ANSWER_LIMIT { ANSWER_LIMIT + slow } else { Duration::ZERO }
}

/// How much later a release may arrive if more than two of its requests are lost. Each loss after the second delays the
/// release by the time limit for an answer and the longest pause.
fn release_delay(plan: &Plan) -> Duration {
    let faults_of = |index: usize| {
        let is_its = |fault: &&Fault| matches!(fault, Fault::Request { client, .. } if *client == index);
        plan.faults.iter().filter(is_its).count() as u32
    };
    let most = (0..plan.clients.len()).map(faults_of).max().unwrap_or(0);
    (REQUEST_TIMEOUT + MAX_PAUSE) * most.saturating_sub(2)
}

/// How late the head of the queue may poll after a lease ended; the end of a lease sends no notification. The head of
/// the queue may have asked last before the current hold began. The answer then told it when the previous hold may end,
/// not the current one, so it polls at its usual interval. If a lease is shorter than this interval, its next poll may
/// be late.
fn poll_delay(plan: &Plan) -> Duration {
    SLOWEST_POLL.saturating_sub(plan.shortest_lease())
}

/// How long the queue entry of a dead client may block the name. The entry lasts for its entry life, which follows from
/// the lease that the claim asks for. Shortly before the end of the entry, the claim may be granted the name, for one
/// claim time.
fn longest_entry_life(plan: &Plan) -> Duration {
    let longest = plan.longest_lease();
    entry_life(longest) + CLAIM_TIME.min(longest)
}

/// The terms by which the checker judges the run.
fn terms(plan: &Plan) -> Terms {
    let promise = plan.promise();
    let mut terms = Terms::default();
    // Deadlines are recorded by the world's clock, which has the rate of the server's clock. So the recorded deadlines
    // already include the drift of the client's clock, and the checker need not allow for drift.
    terms.drift = 0.0;
    terms.reading = Duration::from_micros(1);
    terms.precision = Duration::from_micros(1);
    terms.lossy = !promise.exclusion;
    terms.entry_life = longest_entry_life(plan);
    terms.under_way = REQUEST_LIFE;
    terms.set_back = plan.sets_back();
    terms.overtakes = (promise.calm && plan.named).then_some(0);
    if plan.delays_timers() {
        // Then timers are late, by at most one sleep of the keeper. `check` is not late, because it needs no timer.
        terms.report_limit += MAX_NAP;
        terms.over_limit += MAX_NAP;
    }
    // If a client is paused before it reads its clock, it counts its limit from the time at which it runs again.
    terms.over_limit += plan.stops_in_steps();
    // The end of a minimum hold sends no notification, so the waiters notice it by a poll.
    let poll = match plan.protocol {
        Protocol::Poll => Duration::from_secs(1),
        _ if plan.has_min_holds() => SLOWEST_POLL,
        _ => Duration::ZERO,
    };
    // A slow message takes ten times as long as others, and few of the four messages of a hand-over are slow.
    let slowest = plan.delay.1 * 14;
    if promise.calm {
        terms.wake += poll + slowest + resend_delay(plan);
        // If `wake` includes the time for a poll already, `lapse` need not include it again.
        terms.lapse = if poll.is_zero() { poll_delay(plan) } else { Duration::ZERO };
    } else {
        let crashes = plan.faults.iter().filter(|fault| matches!(fault, Fault::Crash { .. })).count() as u32;
        terms.wake = plan.recovery() + plan.longest_lease() * crashes + slowest;
        // A client that is paused cleans up later, or is killed before it cleans up.
        terms.cancelled += REQUEST_TIMEOUT * 2 + slowest + plan.stops() + release_delay(plan);
    }
    terms
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use leasehold_core::{Answer, Claim, ClaimId, How, Instant, Mode, Name, Previous, Release};

    use super::*;
    use crate::{
        plan::Protocol,
        scheduler::Group,
        server::{Reply, Request, RequestContext, Store},
    };

    fn claim(id: u8, ttl: Duration, may_queue: bool) -> Claim {
        Claim {
            id: ClaimId([id; 16]),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            ttl,
            claim_time: CLAIM_TIME.min(ttl),
            may_queue,
            tokens: 1,
            owner: Arc::from("somebody"),
            stops_on_term: false,
        }
    }

    /// A claim asks for the longest lease, waits in the queue, and its process dies. The dead claim is granted the name
    /// when its entry is about to end. A try of another claim is answered "taken" for as long as the terms allow, and
    /// no longer.
    #[test]
    fn the_entry_of_a_dead_process_may_be_granted_until_it_ends() {
        let none_deaf = BTreeSet::new();
        for seed in 1..=50 {
            let plan = Plan::draw(seed, 32, None);
            let longest = plan.longest_lease();
            let mut store = Store::new(Protocol::Poll, None);
            let mut ask = |after: Duration, request: &Request| {
                let now = Instant::from_nanos(1_000_000_000_000).after(after);
                let mut context = RequestContext { now, disconnected: &none_deaf, mail: Vec::new() };
                store.serve(&mut context, Group::WORLD, request)
            };
            let holder = claim(1, Duration::from_secs(3600), false);
            let Reply::Claim(Ok(Answer::Held(grant))) =
                ask(Duration::ZERO, &Request::Claim(holder.clone(), How::Create))
            else {
                panic!("it is free")
            };
            ask(Duration::ZERO, &Request::Claim(claim(2, longest, true), How::Create));
            let Claim { id, name, mode, .. } = holder;
            let token = Some(grant.token);
            let release = Release { id, name, mode, token, ended: Previous::Clean, min_hold: None };
            let moment = Duration::from_nanos(1);
            ask(entry_life(longest) - moment, &Request::Release(vec![(release, false)]));
            let blocked = terms(&plan).entry_life;
            let mut tries =
                |number, after| ask(after, &Request::Claim(claim(number, longest, false), How::Create));
            let early = tries(3, blocked - moment * 2);
            assert!(matches!(early, Reply::Claim(Ok(Answer::Taken(_)))), "seed {seed}: {early:?}");
            let late = tries(4, blocked);
            assert!(matches!(late, Reply::Claim(Ok(Answer::Held(_)))), "seed {seed}: {late:?}");
        }
    }
}
