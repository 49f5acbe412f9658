//! Waits until it is the turn of one run under an exclusive lock, or until another process has made the run needless.

use std::{ops::ControlFlow, time::Duration};

use crate::{Error, ErrorKind, Guard, Locks, Modes, Request, request::Family};

/// How long to wait for a run that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    UntilDone,
    AtMost(Duration),
    Never,
}

/// What a call is to do.
pub(crate) enum Turn<D, O> {
    /// Nothing: another run has done it, and left this.
    Done(D),
    /// Run the work under this guard. The look under the lock found this.
    Run(Guard, O),
}

/// Reads what earlier runs have stored. A trait and no closure: the futures of async closures are not known to be
/// `Send`.
pub(crate) trait Look: Sync {
    /// What a run that is over has left.
    type Done: Send;
    /// What is found if the work is still to be done.
    type Open: Send;

    /// `Break` if nothing is left to do.
    fn look(&self) -> impl Future<Output = Result<ControlFlow<Self::Done, Self::Open>, Error>> + Send;
}

/// Waits for a turn under `request`.
///
/// The first look is without the lock. Requests that find another run going on share a lock behind it, so all of them
/// wake together and look; engines with exclusive locks alone have only the queue. The last look is under the lock
/// (R30): another run may have ended since.
pub(crate) async fn next_turn<L: Look>(
    locks: &Locks,
    request: &Request,
    waiting: Waiting,
    look: &L,
) -> Result<Turn<L::Done, L::Open>, Error> {
    let steps = steps(locks, request, waiting, look);
    match waiting {
        Waiting::AtMost(limit) => locks.shared().within_limit(&request.valid_name()?, limit, steps).await,
        Waiting::UntilDone | Waiting::Never => steps.await,
    }
}

/// The steps of [`next_turn`], without a limit for the requests that are no waits.
async fn steps<L: Look>(
    locks: &Locks,
    request: &Request,
    waiting: Waiting,
    look: &L,
) -> Result<Turn<L::Done, L::Open>, Error> {
    // The limit of the waits counts from here, as that of all steps together.
    let began_at = locks.shared().now();
    if let ControlFlow::Break(done) = look.look().await? {
        return Ok(Turn::Done(done));
    }
    match request.try_acquire().await {
        Ok(guard) => return turn_under(guard, look).await,
        Err(error) if error.kind() == ErrorKind::Taken && waiting != Waiting::Never => {}
        Err(error) => return Err(error),
    }
    let acquire = |request: &Request| match waiting {
        Waiting::AtMost(limit) => {
            request.acquire_within(limit.saturating_sub(locks.shared().now().since(began_at)))
        }
        Waiting::UntilDone | Waiting::Never => request.acquire(),
    };
    if locks.profile().modes != Modes::Exclusive {
        let behind = acquire(&request.for_name(Ok(request.valid_name()?), Family::Shared, 1)).await?;
        // R30: this hold is not used, so the next one is told how the run before it ended.
        let behind = behind.in_transit();
        let seen = look.look().await;
        drop(behind);
        if let ControlFlow::Break(done) = seen? {
            return Ok(Turn::Done(done));
        }
    }
    turn_under(acquire(request).await?, look).await
}

/// Looks again under the lock.
async fn turn_under<L: Look>(guard: Guard, look: &L) -> Result<Turn<L::Done, L::Open>, Error> {
    // Until the work begins the hold counts as not used, also if this future is dropped.
    let guard = guard.in_transit();
    Ok(match look.look().await? {
        ControlFlow::Continue(open) => Turn::Run(guard.received(), open),
        ControlFlow::Break(done) => Turn::Done(done),
    })
}
