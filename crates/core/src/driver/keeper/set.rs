//! A set: several names that one request acquires, all or none.
//!
//! If the engine can, one step takes all names. Otherwise, and to wait, the names are acquired one after another in
//! byte order, so that no two sets wait for each other. If a hold is lost on the way, all holds are released, and the
//! request begins again.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use super::one_step::{Begun, OneStep, in_one_step};
use crate::{
    Acquire, Answer, Error, ErrorKind, Guard, Hint, Instant, Loss, Name, Pace,
    driver::local::{RequestSpec, Tries},
    driver::shared::{Shared, SharedHandle},
    pure::wait::{Wait, WaitAction},
};

/// The names of one request, and the options of the whole request.
pub(crate) struct NameSet {
    /// One request for each name, in byte order; none has a `max_hold`.
    pub(crate) specs: Vec<RequestSpec>,
    /// How long the guards may use their holds, from the moment at which all are granted.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) pace: Option<Pace>,
}

/// What a pass over all names ended with.
enum Pass {
    Held(Vec<Guard>),
    /// The error of this name.
    Failed(Name, Error),
}

/// Acquires the names of `set`, until `until` at the latest or until the request is dropped, and sends the outcome.
pub(crate) async fn acquire_set(
    handle: Arc<SharedHandle>,
    set: NameSet,
    until: Option<Instant>,
    tries: Tries,
    mut tx: oneshot::Sender<Result<Vec<Guard>, Error>>,
) {
    let _pending = handle.pending.add();
    let result = tokio::select! {
        biased;
        result = acquire(&handle, &set, until, tries) => result,
        // Every guard so far is dropped, and so released.
        () = tx.closed() => return,
    };
    let _ = tx.send(result);
}

async fn acquire(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
    tries: Tries,
) -> Result<Vec<Guard>, Error> {
    let mut guards = match tries {
        Tries::UntilGranted => wait_for_all(handle, set, until).await?,
        Tries::Limited(tries) => try_all(handle, set, until, tries).await?,
    };
    let now = handle.now();
    if let Some(max_hold) = set.max_hold {
        guards.iter_mut().for_each(|guard| handle.limit_guard(guard, max_hold, now));
    }
    Ok(guards)
}

/// Takes all names in one step if they are free, else waits for one after another.
async fn wait_for_all(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
) -> Result<Vec<Guard>, Error> {
    if let Some(error) = handle.order_error(&set.specs) {
        return Err(error);
    }
    let since = handle.now();
    match in_one_step(handle, &set.specs, until, Begun { since, contended: false }).await {
        OneStep::Held(guards) => return Ok(guards),
        OneStep::Failed { index, error, is_final: true } => {
            return Err(report(handle, &set.specs[index], error, since));
        }
        // Whatever kept the one step from a grant, the wait for each name copes with it, and tells the user.
        OneStep::Impossible | OneStep::Failed { is_final: false, .. } => {}
    }
    match in_order(handle, &set.specs, until, Tries::UntilGranted).await {
        Pass::Held(guards) => Ok(guards),
        Pass::Failed(_, error) => Err(error),
    }
}

/// Tries to take all names, up to `tries` times, with the pauses of the request.
async fn try_all(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
    tries: u32,
) -> Result<Vec<Guard>, Error> {
    let mut wait = Wait::new(&handle.profile, None);
    wait.set_pace(set.pace);
    let since = handle.now();
    let mut begun = Begun { since, contended: false };
    for tries_left in (0..tries).rev() {
        let (name, error) = match try_once(handle, &set.specs, until, begun).await {
            Pass::Held(guards) => return Ok(guards),
            Pass::Failed(name, error) => (name, error),
        };
        begun.contended |= error.is_taken();
        let may_help =
            error.is_taken() || error.is_unreachable() || error.is_unknown() || error.is_misconfigured();
        let is_over = |at: Instant| until.is_some_and(|until| at >= until);
        let never_reached = handle.connect_deadline(since).is_some_and(|limit| handle.now() >= limit);
        if tries_left == 0 || !may_help || never_reached {
            return Err(error);
        }
        let answer = Ok(Answer::Taken(Hint::default()));
        let WaitAction::Call { at, .. } = wait.answered(answer, handle.now(), handle.env.jitter()) else {
            return Err(error);
        };
        let pause_end = until.map_or(at, |until| at.min(until));
        if let Some(outage) = handle.sleep_unless_outage(pause_end, &name).await {
            return Err(outage);
        }
        if is_over(at) {
            return Err(error);
        }
    }
    Err(Error::new(ErrorKind::Internal, "a request for several names made no try"))
}

/// One try of all names.
async fn try_once(
    handle: &Arc<SharedHandle>,
    specs: &[RequestSpec],
    until: Option<Instant>,
    begun: Begun,
) -> Pass {
    match in_one_step(handle, specs, until, begun).await {
        OneStep::Held(guards) => Pass::Held(guards),
        OneStep::Impossible => in_order(handle, specs, until, Tries::Limited(1)).await,
        OneStep::Failed { index, error, .. } => {
            let name = specs[index].name.clone();
            let error = report(handle, &specs[index], error, begun.since);
            Pass::Failed(name, error)
        }
    }
}

/// Acquires one name after another. A hold that is lost before the last name is granted begins the pass again.
async fn in_order(
    handle: &Arc<SharedHandle>,
    specs: &[RequestSpec],
    until: Option<Instant>,
    tries: Tries,
) -> Pass {
    'pass: loop {
        let mut held = HeldSoFar::default();
        for spec in specs {
            let limit = until.map(|until| until.since(handle.now()));
            let acquire = Acquire::new(handle, spec.clone(), limit, tries);
            match held.while_valid(acquire).await {
                Ok(Ok(guard)) => held.add(guard),
                Ok(Err(error)) => return Pass::Failed(spec.name.clone(), error),
                // `held` is dropped, which releases all names.
                Err(Lost) => continue 'pass,
            }
        }
        let now = handle.now();
        if held.guards.iter().all(|guard| guard.validity.loss(now).is_none()) {
            return Pass::Held(held.guards);
        }
    }
}

/// A hold was lost before all names were granted.
struct Lost;

/// The guards of the names that are granted so far.
#[derive(Default)]
struct HeldSoFar {
    guards: Vec<Guard>,
    /// The loss of each guard.
    losses: Vec<Pin<Box<dyn Future<Output = Loss> + Send>>>,
}

impl HeldSoFar {
    fn add(&mut self, guard: Guard) {
        self.losses.push(Box::pin(guard.lost()));
        // The user does not have it yet.
        self.guards.push(guard.in_transit());
    }

    /// The output of `work`, unless a hold is lost before.
    async fn while_valid<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(value) = work.as_mut().poll(cx) {
                return std::task::Poll::Ready(Ok(value));
            }
            let is_lost = self.losses.iter_mut().any(|loss| loss.as_mut().poll(cx).is_ready());
            if is_lost { std::task::Poll::Ready(Err(Lost)) } else { std::task::Poll::Pending }
        })
        .await
    }
}

/// Reports the error of a request that no single request reports.
fn report(shared: &Shared, spec: &RequestSpec, error: Error, since: Instant) -> Error {
    shared.observer.refused(&spec.name, spec.terms.mode, &error, shared.waited_since(since));
    error
}
