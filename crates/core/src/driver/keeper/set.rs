//! A set: several names that one request acquires, all or none.
//!
//! If the engine can, one step takes all names. Otherwise, and to wait, the names are acquired one after another in
//! byte order, so that no two sets wait for each other. If a hold is lost on the way, all holds are released, and the
//! request begins again.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    attempt::taken_error,
    one_step::{OneStep, in_one_step},
    set_events::SetEvents,
};
use crate::{
    Acquire, Answer, Error, ErrorKind, Guard, Hint, Instant, Loss, Pace,
    driver::local::{RequestSpec, Tries},
    driver::shared::SharedHandle,
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
    Failed {
        error: Error,
        /// A further try may succeed.
        may_help: bool,
    },
}

/// Acquires the names of `set`, until `until` at the latest or until the request is dropped, and sends the outcome.
pub(crate) async fn acquire_set(
    events: SetEvents,
    set: NameSet,
    until: Option<Instant>,
    tries: Tries,
    mut tx: oneshot::Sender<Result<Vec<Guard>, Error>>,
) {
    let handle = Arc::clone(events.handle());
    let _pending = handle.pending.add();
    let acquired = tokio::select! {
        biased;
        acquired = acquire(&handle, &set, until, tries, &events) => acquired,
        // Every guard so far is dropped, and so released.
        () = tx.closed() => return,
    };
    let result = match acquired {
        Ok(mut guards) => {
            events.granted(&guards);
            let now = handle.now();
            if let Some(max_hold) = set.max_hold {
                guards.iter_mut().for_each(|guard| handle.limit_guard(guard, max_hold, now));
            }
            Ok(guards)
        }
        Err(error) => Err(events.failed(error)),
    };
    let _ = tx.send(result);
}

async fn acquire(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
    tries: Tries,
    events: &SetEvents,
) -> Result<Vec<Guard>, Error> {
    match tries {
        Tries::UntilGranted => wait_for_all(handle, set, until, events).await,
        Tries::Limited(tries) => try_all(handle, set, until, tries, events).await,
    }
}

/// Takes all names in one step if they are free, else waits for one after another.
async fn wait_for_all(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
    events: &SetEvents,
) -> Result<Vec<Guard>, Error> {
    if let Some(error) = handle.order_error(&set.specs) {
        return Err(error);
    }
    match in_one_step(handle, &set.specs, until, events.since).await {
        OneStep::Held(guards) => return Ok(guards),
        OneStep::Failed { error, is_final: true } => return Err(error),
        // Whatever kept the one step from a grant, the wait for each name copes with it, and tells the user.
        OneStep::Failed { error, is_final: false } => events.note_try(&error),
        OneStep::Impossible => {}
    }
    match in_order(handle, set, until, Tries::UntilGranted).await {
        Pass::Held(guards) => Ok(guards),
        Pass::Failed { error, .. } => Err(error),
    }
}

/// Tries to take all names, up to `tries` times, with the pauses of the request.
async fn try_all(
    handle: &Arc<SharedHandle>,
    set: &NameSet,
    until: Option<Instant>,
    tries: u32,
    events: &SetEvents,
) -> Result<Vec<Guard>, Error> {
    let mut pauses = Pauses::new(handle, set);
    let since = events.since;
    for tries_left in (0..tries).rev() {
        let (error, may_help) = match try_once(handle, set, until, since).await {
            Pass::Held(guards) => return Ok(guards),
            Pass::Failed { error, may_help } => (error, may_help),
        };
        events.note_try(&error);
        let never_reached = handle.connect_deadline(since).is_some_and(|limit| handle.now() >= limit);
        if tries_left == 0 || !may_help || never_reached {
            return Err(error);
        }
        let Some(at) = pauses.next(handle) else { return Err(error) };
        let pause_end = until.map_or(at, |until| at.min(until));
        let name = error.name().unwrap_or(&set.specs[0].name);
        if let Some(outage) = handle.sleep_unless_outage(pause_end, name).await {
            return Err(outage);
        }
        if until.is_some_and(|until| at >= until) {
            return Err(error);
        }
    }
    Err(Error::new(ErrorKind::Internal, "a request for several names made no try"))
}

/// One try of all names.
async fn try_once(handle: &Arc<SharedHandle>, set: &NameSet, until: Option<Instant>, since: Instant) -> Pass {
    match in_one_step(handle, &set.specs, until, since).await {
        OneStep::Held(guards) => Pass::Held(guards),
        OneStep::Impossible => {
            // Names that were claimed before the taken one would stay taken until the engine has answered their
            // release.
            if let Some(spec) = set.specs.iter().find(|spec| handle.is_blocked_locally(spec))
                && handle.outage_error(&spec.name).is_none()
            {
                let error = taken_error(handle, spec).of_name(&spec.name);
                return Pass::Failed { error, may_help: true };
            }
            in_order(handle, set, until, Tries::Limited(1)).await
        }
        OneStep::Failed { error, is_final } => Pass::Failed { error, may_help: !is_final },
    }
}

/// The pauses between the tries, or between the passes, of one request.
struct Pauses(Wait);

impl Pauses {
    fn new(handle: &SharedHandle, set: &NameSet) -> Self {
        let mut wait = Wait::new(&handle.profile, None);
        wait.set_pace(set.pace);
        Self(wait)
    }

    /// When the pause that begins now is over.
    fn next(&mut self, handle: &SharedHandle) -> Option<Instant> {
        let answer = Ok(Answer::Taken(Hint::default()));
        match self.0.answered(answer, handle.now(), handle.env.jitter()) {
            WaitAction::Call { at, .. } => Some(at),
            WaitAction::Held(_) | WaitAction::Restart | WaitAction::Fail(_) => None,
        }
    }
}

/// Acquires one name after another. If a hold is lost before the last name is granted, a request that waits begins
/// again, after a pause; a try fails.
async fn in_order(handle: &Arc<SharedHandle>, set: &NameSet, until: Option<Instant>, tries: Tries) -> Pass {
    let mut pauses = Pauses::new(handle, set);
    loop {
        let lost = match pass_in_order(handle, &set.specs, until, tries).await {
            Ok(pass) => return pass,
            Err(lost) => lost,
        };
        let pause = match tries {
            Tries::UntilGranted => pauses.next(handle),
            Tries::Limited(_) => None,
        };
        let Some(at) = pause else { return Pass::Failed { error: lost, may_help: true } };
        handle.sleep_until(until.map_or(at, |until| at.min(until))).await;
    }
}

/// Acquires one name after another. An error is the loss of a hold before the last name was granted: all names are
/// released then.
async fn pass_in_order(
    handle: &Arc<SharedHandle>,
    specs: &[RequestSpec],
    until: Option<Instant>,
    tries: Tries,
) -> Result<Pass, Error> {
    let mut held = HeldSoFar::default();
    for spec in specs {
        let limit = until.map(|until| until.since(handle.now()));
        let acquire = Acquire::new(handle, spec.clone(), limit, tries);
        match held.while_valid(acquire).await? {
            Ok(guard) => held.add(guard),
            Err(error) => {
                let may_help = error.is_taken()
                    || error.is_unreachable()
                    || error.is_unknown()
                    || error.is_of_obstacle();
                return Ok(Pass::Failed { error, may_help });
            }
        }
    }
    let now = handle.now();
    let lost = |guard: &Guard| Some(guard.lost_error(&guard.validity.loss_report(now)?));
    held.guards.iter().find_map(lost).map_or(Ok(()), Err)?;
    Ok(Pass::Held(held.guards))
}

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

    /// The output of `work`. An error if a hold is lost before.
    async fn while_valid<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            for (loss, guard) in self.losses.iter_mut().zip(&self.guards) {
                if let Poll::Ready(loss) = loss.as_mut().poll(cx) {
                    return Poll::Ready(Err(guard.lost_error(&loss.into())));
                }
            }
            Poll::Pending
        })
        .await
    }
}
