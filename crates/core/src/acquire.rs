//! The future of a request for one name.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    Error, ErrorKind, Guard, Name,
    driver::local::{Entered, RequestSpec, Ticket, Tries},
    driver::shared::{Shared, SharedHandle},
};

/// Waits for a guard. Runs under any executor.
///
/// # Cancel safety
/// Dropping it, at any point, leaves the queue and leaves nothing behind.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire {
    state: RequestState,
    /// Events during the wait are recorded in this span.
    span: tracing::Span,
}

/// The stages of the future of a request.
enum RequestState {
    /// The options are wrong.
    Invalid(Error),
    /// Not polled yet.
    New { handle: Arc<SharedHandle>, spec: Box<RequestSpec>, limit: Option<Duration>, tries: Tries },
    /// Begun; the result arrives in `rx`. The ticket identifies the entry in the local queue, if there is one.
    Waiting {
        handle: Arc<SharedHandle>,
        name: Name,
        ticket: Option<Ticket>,
        rx: oneshot::Receiver<Result<Guard, Error>>,
    },
    /// The result was returned.
    Done,
}

impl Acquire {
    /// Fails at its first poll, because the options of its request are wrong.
    pub(crate) const fn invalid(error: Error) -> Self {
        Self { state: RequestState::Invalid(error), span: tracing::Span::none() }
    }

    /// Waits for the guard of a request whose options are checked.
    pub(crate) fn new(
        handle: &Arc<SharedHandle>,
        spec: RequestSpec,
        limit: Option<Duration>,
        tries: Tries,
    ) -> Self {
        let engine = handle.profile.engine;
        let span = tracing::debug_span!("acquire", engine, name = %spec.name, mode = %spec.terms.mode);
        let state = RequestState::New { handle: Arc::clone(handle), spec: Box::new(spec), limit, tries };
        Self { state, span }
    }

    /// The error if this request, not polled yet, would wait under a hold that its owner has to take later: see
    /// [`Shared::order_error`].
    pub(crate) fn order_error(&self) -> Option<Error> {
        match &self.state {
            RequestState::New { handle, spec, tries: Tries::UntilGranted, .. } => {
                handle.order_error(std::slice::from_ref(spec))
            }
            _ => None,
        }
    }
}

impl Future for Acquire {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { state, span } = &mut *self;
        let _entered = span.enter();
        loop {
            match std::mem::replace(state, RequestState::Done) {
                RequestState::Invalid(error) => return Poll::Ready(Err(error)),
                RequestState::New { handle, spec, limit, tries } => {
                    let name = spec.name.clone();
                    match Shared::enter(&handle, *spec, limit, tries, span) {
                        Entered::Now(result) => return Poll::Ready(received(result, &name)),
                        Entered::Wait { rx, ticket } => {
                            *state = RequestState::Waiting { handle, name, ticket, rx }
                        }
                    }
                }
                RequestState::Waiting { handle, .. } if !handle.is_own_process() => {
                    return Poll::Ready(Err(handle
                        .check_open()
                        .expect_err("another process than the one of the `Locks`")));
                }
                RequestState::Waiting { handle, name, ticket, mut rx } => match Pin::new(&mut rx).poll(cx) {
                    Poll::Ready(Ok(result)) => return Poll::Ready(received(result, &name)),
                    Poll::Ready(Err(_)) => {
                        let text = name.as_str();
                        let message = format!("the wait for {text:?} ended: its keeper is gone");
                        return Poll::Ready(Err(Error::new(ErrorKind::Closed, message).of_name(&name)));
                    }
                    Poll::Pending => {
                        *state = RequestState::Waiting { handle, name, ticket, rx };
                        return Poll::Pending;
                    }
                },
                RequestState::Done => panic!("Acquire polled after it was done"),
            }
        }
    }
}

/// The result of a request for `name`, as its user gets it.
fn received(result: Result<Guard, Error>, name: &Name) -> Result<Guard, Error> {
    result.map(Guard::received).map_err(|error| error.of_name(name))
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let RequestState::Waiting { handle, name, ticket: Some(ticket), .. } = &self.state {
            handle.cancel(name, *ticket);
        }
        // A guard that has arrived already is dropped, and so released, with `rx`.
    }
}
