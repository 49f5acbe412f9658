//! Background tasks, none of which ends silently by a panic.
//!
//! A panic is a bug, in our code or in a client library that got an unexpected answer. A runtime drops a task that
//! panics, and only the owner of its handle can notice. So every task spawned through this module either turns its
//! panic into an error, or is started again.

use std::{
    any::Any,
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};

use crate::{EngineError, Fault};

/// The pause before a task that panicked is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// The message of a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl Panicked {
    fn from_payload(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Self(text.lines().next().unwrap_or_default().to_owned())
    }

    /// The panic as an error. No `From`: it would make `??` ambiguous for every engine.
    pub(crate) fn into_error(self) -> EngineError {
        EngineError::new(Fault::Internal, self.to_string())
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bug in leasehold, please report it: a task panicked: {}", self.0)
    }
}

/// The result of `work`, or its panic.
///
/// # Errors
/// The message of the panic. No code of `work` runs after it.
pub async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    // No code sees the unfinished state after a panic: `work` is dropped.
    let pass_on = false;
    catch_panic_unless(pass_on, work).await
}

/// As [`catch_panic`]; but if `pass_on`, a panic is passed on to a runtime that reports it.
pub(crate) async fn catch_panic_unless<T>(
    pass_on: bool,
    work: impl Future<Output = T>,
) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if pass_on {
            return work.as_mut().poll(context).map(Ok);
        }
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(Panicked::from_payload(&*payload))),
        }
    })
    .await
}

/// Runs the work that `begin` starts, until the work returns. When the work panics, `panicked` is called, to make other
/// parts check what the work may have left undone; after a pause by `sleep` the work is started again.
pub async fn run_with_restarts<W, S>(
    what: &str,
    mut begin: impl FnMut() -> W,
    mut panicked: impl FnMut(),
    mut sleep: impl FnMut(Duration) -> S,
) where
    W: Future<Output = ()>,
    S: Future<Output = ()>,
{
    while let Err(error) = catch_panic(async { begin().await }).await {
        tracing::error!(what, panicked = %error, "a task panicked and is restarted");
        panicked();
        sleep(RESTART_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let outcome = |work: fn() -> u8| pollster::block_on(catch_panic(async move { work() }));
        assert_eq!(outcome(|| 7), Ok(7));
        assert_eq!(outcome(|| panic!("plain")), Err(Panicked("plain".to_owned())));
        let many_lines = outcome(|| panic!("{} of\nmany", "one"));
        assert_eq!(many_lines, Err(Panicked("one of".to_owned())));
        assert_eq!(outcome(|| std::panic::panic_any(7)), Err(Panicked("without a word".to_owned())));
    }

    #[test]
    fn work_is_restarted_until_it_returns() {
        let log = RefCell::new(Vec::new());
        pollster::block_on(run_with_restarts(
            "a test",
            || async {
                log.borrow_mut().push("started");
                assert!(log.borrow().len() > 4, "not yet");
            },
            || log.borrow_mut().push("panicked"),
            |_| std::future::ready(()),
        ));
        assert_eq!(*log.borrow(), ["started", "panicked", "started", "panicked", "started"]);
    }
}
