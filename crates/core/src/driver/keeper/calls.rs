//! What users want called when a hold is lost. Their code may block, which the keeper must not: it has a thread of its own, one for all
//! guards of a `Locks`, however many are lost at once.
#![expect(clippy::disallowed_methods, reason = "the door of the keeper: a thread for the code of users")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use crate::{Error, ErrorKind, Loss, driver::validity::Call};

type Due = Box<dyn FnOnce() + Send>;

/// The way to that thread, which begins with the first call that is wanted: then the system can still say that it has none left. It
/// ends with the `Locks` and the last guard that has a call.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Option<Sender<Due>>>);

impl Calls {
    /// What the keeper is to do, at once, to have `then` called.
    pub(crate) fn prepare(&self, then: impl FnOnce(Loss) + Send + 'static) -> Result<Call, Error> {
        let due = self.sender()?;
        Ok(Box::new(move |loss| {
            // The thread lives as long as this sender.
            let _ = due.send(Box::new(move || then(loss)));
        }))
    }

    fn sender(&self) -> Result<Sender<Due>, Error> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            return Ok(sender.clone());
        }
        let (new, due) = channel();
        let started = thread::Builder::new().name("leasehold lost".into()).spawn(move || run(&due));
        started.map_err(|error| {
            let message = format!(
                "cannot start a thread for what is to be called: {error}: raise the limit of threads"
            );
            Error::new(ErrorKind::Refused, message)
        })?;
        Ok(sender.insert(new).clone())
    }
}

fn run(due: &Receiver<Due>) {
    for call in due {
        // What it may have left half-way through is the user's, who lost the hold anyway.
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            tracing::error!("what was called for a lost hold panicked");
        }
    }
}
