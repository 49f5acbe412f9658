//! The future of a request for several names, and its twin for code without an executor.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::Instrument;

use crate::{
    Acquire, All, Error, ErrorKind, Guard, Guards,
    driver::keeper::{KeeperJob, NameSet, SetEvents, acquire_set, poll_once},
    driver::local::Tries,
    driver::shared::SharedHandle,
};

/// Waits for the guards of several names. Runs under any executor.
///
/// # Cancel safety
/// Dropping it, at any point, leaves the queues and leaves nothing behind.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireAll(State);

/// The stages of the future.
enum State {
    /// The request is wrong.
    Invalid(Error),
    /// There is only one name.
    One(Acquire),
    /// Not polled yet.
    New {
        handle: Arc<SharedHandle>,
        set: Box<NameSet>,
        limit: Option<Duration>,
        tries: Tries,
        span: tracing::Span,
    },
    /// Begun; the result arrives in `rx`. When `rx` is dropped, the keeper releases all names.
    Waiting { handle: Arc<SharedHandle>, rx: oneshot::Receiver<Result<Vec<Guard>, Error>> },
    /// The result was returned.
    Done,
}

impl AcquireAll {
    pub(crate) const fn invalid(error: Error) -> Self {
        Self(State::Invalid(error))
    }

    pub(crate) const fn one(acquire: Acquire) -> Self {
        Self(State::One(acquire))
    }

    pub(crate) fn set(
        handle: &Arc<SharedHandle>,
        set: NameSet,
        limit: Option<Duration>,
        tries: Tries,
    ) -> Self {
        let names = || set.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>();
        let span = tracing::debug_span!("acquire_all", engine = handle.profile.engine, names = ?names());
        Self(State::New { handle: Arc::clone(handle), set: Box::new(set), limit, tries, span })
    }
}

impl Future for AcquireAll {
    type Output = Result<Guards, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.0;
        // Polled where it is: a request for one name is not to cost more than one without a set.
        if let State::One(acquire) = state {
            return match acquire.order_error() {
                Some(error) => Poll::Ready(Err(error)),
                None => Pin::new(acquire).poll(cx).map_ok(Guards::one),
            };
        }
        loop {
            match std::mem::replace(state, State::Done) {
                State::Invalid(error) => return Poll::Ready(Err(error)),
                State::One(_) => unreachable!("polled above"),
                State::New { handle, set, limit, tries, span } => {
                    match begin(&handle, *set, limit, tries, &span) {
                        Ok(rx) => *state = State::Waiting { handle, rx },
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                State::Waiting { handle, .. } if !handle.is_own_process() => {
                    return Poll::Ready(Err(handle
                        .check_open()
                        .expect_err("another process than the one of the `Locks`")));
                }
                State::Waiting { handle, mut rx } => match Pin::new(&mut rx).poll(cx) {
                    Poll::Ready(Ok(result)) => return Poll::Ready(result.map(Guards::received)),
                    Poll::Ready(Err(_)) => {
                        let message = "the wait for several names ended: its keeper is gone";
                        return Poll::Ready(Err(Error::new(ErrorKind::Closed, message)));
                    }
                    Poll::Pending => {
                        *state = State::Waiting { handle, rx };
                        return Poll::Pending;
                    }
                },
                State::Done => panic!("AcquireAll polled after it was done"),
            }
        }
    }
}

/// Begins to acquire the names: on this thread as far as this needs no wait, then on the keeper.
fn begin(
    handle: &Arc<SharedHandle>,
    set: NameSet,
    limit: Option<Duration>,
    tries: Tries,
    span: &tracing::Span,
) -> Result<oneshot::Receiver<Result<Vec<Guard>, Error>>, Error> {
    if !handle.is_own_process() {
        handle.check_open()?;
    }
    let _entered = span.enter();
    let events = SetEvents::begin(handle, &set.specs);
    if let Err(error) = handle.ensure_served() {
        return Err(events.failed(error));
    }
    let until = limit.map(|limit| handle.now().after(limit));
    let (tx, rx) = oneshot::channel();
    let may_pause = matches!(tries, Tries::Limited(2..));
    let mut task = Box::pin(acquire_set(events, set, until, tries, tx).instrument(span.clone()));
    if handle.profile.inline && !may_pause && poll_once(task.as_mut()).is_some() {
        return Ok(rx);
    }
    if handle.may_start_on_caller(0) {
        handle.start_on_caller(task);
    } else {
        handle.queue_job(KeeperJob::Spawn(task));
    }
    Ok(rx)
}

/// A request for several names, [`All`], for code without an executor: each method blocks the thread. Not for use
/// inside async code.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct BlockingAll(pub(crate) All);

impl BlockingAll {
    /// See [`All::acquire`].
    ///
    /// # Errors
    /// As [`All::acquire`].
    ///
    /// # Panics
    /// In a task on the single thread that runs the [`Keeper`](crate::Keeper): see [`Blocking`](crate::Blocking).
    #[track_caller]
    pub fn acquire(&self) -> Result<Guards, Error> {
        self.0.handle().block_on(self.0.acquire())?
    }

    /// See [`All::acquire_within`].
    ///
    /// # Errors
    /// As [`All::acquire_within`].
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_within(&self, limit: Duration) -> Result<Guards, Error> {
        self.0.handle().block_on(self.0.acquire_within(limit))?
    }

    /// See [`All::try_acquire`].
    ///
    /// # Errors
    /// As [`All::try_acquire`].
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_acquire(&self) -> Result<Guards, Error> {
        self.0.handle().block_on(self.0.try_acquire())?
    }
}
