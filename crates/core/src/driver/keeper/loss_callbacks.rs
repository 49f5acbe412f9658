//! Callbacks of users for lost holds. User code may block, which the keeper must not: the callbacks have their own
//! thread, one for all guards of a `Locks`, however many holds are lost at once. In the kit for tests they are tasks of
//! the keeper, so that their order does not depend on threads.
#![expect(clippy::disallowed_methods, reason = "part of the keeper: a thread for the code of users")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::Keeper;
use crate::{Error, ErrorKind, Loss, driver::validity::LossCallback};

/// A callback with its argument, ready to be called.
type CallbackRun = Box<dyn FnOnce() + Send>;

/// The channel to the thread that calls the callbacks. The thread starts when the first callback is registered, because
/// a failure to start it can still be reported to the user then. The thread ends when the `Locks` and the last guard
/// that has a callback are dropped.
#[derive(Default)]
pub(crate) struct LossCallbacks(Mutex<Option<Sender<CallbackRun>>>);

impl LossCallbacks {
    /// Makes a callback for the keeper that returns at once: it has the user's `callback` called on the
    /// thread for callbacks, or by a task of the keeper.
    pub(crate) fn prepare(
        &self,
        keeper: &Keeper,
        callback: impl FnOnce(Loss) + Send + 'static,
    ) -> Result<LossCallback, Error> {
        if keeper.calls_back_in_tasks() {
            let keeper = keeper.clone();
            return Ok(Box::new(move |loss| {
                // A runtime that is gone runs nothing any more.
                let _ = keeper.spawn(async move { run_callback(Box::new(move || callback(loss))) });
            }));
        }
        let sender = self.sender()?;
        Ok(Box::new(move |loss| {
            // The thread runs as long as this sender exists.
            let _ = sender.send(Box::new(move || callback(loss)));
        }))
    }

    fn sender(&self) -> Result<Sender<CallbackRun>, Error> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            return Ok(sender.clone());
        }
        let (new_sender, receiver) = channel();
        let started =
            thread::Builder::new().name("leasehold lost".into()).spawn(move || run_callbacks(&receiver));
        started.map_err(|error| {
            let message =
                format!("cannot start a thread for a loss callback: {error}: raise the limit of threads");
            Error::new(ErrorKind::Refused, message)
        })?;
        Ok(sender.insert(new_sender).clone())
    }
}

/// Runs in the thread for callbacks until the last sender is gone.
fn run_callbacks(receiver: &Receiver<CallbackRun>) {
    receiver.iter().for_each(run_callback);
}

/// Runs one callback. A panic in it is only reported.
fn run_callback(callback_run: CallbackRun) {
    // A panic can leave only data of the user half changed, and the user has lost the hold anyway.
    if catch_unwind(AssertUnwindSafe(callback_run)).is_err() {
        tracing::error!("a loss callback panicked");
    }
}
