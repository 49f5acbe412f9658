//! The future of a release.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::forked_error;
use crate::{
    Error, Name,
    driver::local::{ReleaseOutcome, unanswered_release},
};

/// Waits for the result of a release that has begun. A type of its own, because the future of an `async` function would
/// have room for the name and the outcome twice.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Ended {
    name: Name,
    /// `None` when the result was returned.
    outcome: Option<ReleaseOutcome>,
}

impl Ended {
    /// The release of `name` with this outcome; `None`: it was asked for in a forked child.
    pub(crate) fn new(name: &Name, outcome: Option<ReleaseOutcome>) -> Self {
        let outcome = outcome.unwrap_or_else(|| ReleaseOutcome::Done(Err(forked_error())));
        Self { name: name.clone(), outcome: Some(outcome) }
    }
}

impl Future for Ended {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match self.outcome.as_mut().expect("a release is not polled after its result") {
            ReleaseOutcome::Done(result) => std::mem::replace(result, Ok(())),
            ReleaseOutcome::Sent(answer) => {
                let answer = ready!(Pin::new(answer).poll(cx));
                answer.unwrap_or_else(|_| Err(unanswered_release(&self.name)))
            }
        };
        self.outcome = None;
        Poll::Ready(result.map_err(|error| error.of_name(&self.name)))
    }
}
