//! The home of background tasks: none of them dies in silence.
//!
//! A panic is a bug, of ours or of a client library that met an answer it did not expect. A runtime drops a task that
//! panics and tells nobody who did not keep its handle. So whoever spawns a task here either gets the panic as an
//! error, or has the task begun anew.

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

/// After a task died, before it is begun anew.
const PAUSE: Duration = Duration::from_millis(500);

/// What a panic said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl Panicked {
    fn of(said: &(dyn Any + Send)) -> Self {
        let text = said.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| said.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Self(text.lines().next().unwrap_or_default().to_owned())
    }

    /// The same as an error. No `From`: it would make `??` ambiguous for every engine.
    pub(crate) fn into_error(self) -> EngineError {
        EngineError::new(Fault::Internal, self.to_string())
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bug in leasehold, please report it: a task panicked: {}", self.0)
    }
}

/// What comes of `work`, also if it panics.
///
/// # Errors
/// What the panic said. Nothing of `work` runs after it.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    // Nobody looks at what a panic left half-way through: `work` is dropped.
    caught_unless(false, work).await
}

/// The same; `through`: a panic is let through, for a runtime that tells of it.
pub(crate) async fn caught_unless<T>(through: bool, work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if through {
            return work.as_mut().poll(context).map(Ok);
        }
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(said) => Poll::Ready(Err(Panicked::of(&*said))),
        }
    })
    .await
}

/// Does work that nobody else would do, until it returns. When it panics, `fell` has everybody look again at what the
/// work may have left undone, and the work is begun anew after a pause, by the `sleep` of the caller's runtime.
pub async fn lasting<W, S>(
    what: &str,
    mut begin: impl FnMut() -> W,
    mut fell: impl FnMut(),
    mut sleep: impl FnMut(Duration) -> S,
) where
    W: Future<Output = ()>,
    S: Future<Output = ()>,
{
    while let Err(panicked) = caught(async { begin().await }).await {
        tracing::error!(what, %panicked, "a task died and is begun anew");
        fell();
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        let said = |work: fn() -> u8| pollster::block_on(caught(async move { work() }));
        assert_eq!(said(|| 7), Ok(7));
        assert_eq!(said(|| panic!("plain")), Err(Panicked("plain".to_owned())));
        let many_lines = said(|| panic!("{} of\nmany", "one"));
        assert_eq!(many_lines, Err(Panicked("one of".to_owned())));
        assert_eq!(said(|| std::panic::panic_any(7)), Err(Panicked("without a word".to_owned())));
    }

    #[test]
    fn work_is_begun_anew_until_it_returns() {
        let log = RefCell::new(Vec::new());
        pollster::block_on(lasting(
            "a test",
            || async {
                log.borrow_mut().push("begun");
                assert!(log.borrow().len() > 4, "not yet");
            },
            || log.borrow_mut().push("fell"),
            |_| std::future::ready(()),
        ));
        assert_eq!(*log.borrow(), ["begun", "fell", "begun", "fell", "begun"]);
    }
}
