//! The events of a request for several names: for each name one begin and exactly one end, however often the request
//! tries or begins again.

use std::sync::Arc;

use crate::{
    Error, Guard, Instant, Mode, Name,
    driver::local::{Contention, RequestSpec},
    driver::observer::Granted,
    driver::shared::SharedHandle,
    driver::validity::Withheld,
};

/// Reports how a request for several names ended. When it is dropped without an outcome, the request was cancelled, or
/// its keeper is gone.
pub(crate) struct SetEvents {
    handle: Arc<SharedHandle>,
    names: Vec<SetName>,
    /// When the request began.
    pub(super) since: Instant,
    is_ended: bool,
}

/// One name of the request.
struct SetName {
    name: Name,
    mode: Mode,
    contention: Contention,
}

impl SetEvents {
    /// Reports that the request begins.
    pub(crate) fn begin(handle: &Arc<SharedHandle>, specs: &[RequestSpec]) -> Self {
        let name = |spec: &RequestSpec| SetName {
            name: spec.name.clone(),
            mode: spec.terms.mode,
            contention: spec.of_set.clone().unwrap_or_default(),
        };
        let names: Vec<_> = specs.iter().map(name).collect();
        names.iter().for_each(|name| handle.observer.wait_begun(&name.name, name.mode));
        Self { handle: Arc::clone(handle), names, since: handle.now(), is_ended: false }
    }

    pub(super) const fn handle(&self) -> &Arc<SharedHandle> {
        &self.handle
    }

    /// Records the error of a try: a name that was taken counts as contended when it is granted later.
    pub(super) fn note_try(&self, error: &Error) {
        if let Some(name) = self.names.iter().find(|name| Some(&name.name) == error.name()) {
            name.contention.note(error.is_taken());
        }
    }

    /// Reports the grants of all names, and the losses that came between the grant of a name and now. From now on each
    /// guard has the events of its own.
    pub(super) fn granted(mut self, guards: &[Guard]) {
        self.is_ended = true;
        let waited = self.handle.waited_since(self.since);
        for (guard, SetName { name, contention, .. }) in guards.iter().zip(&self.names) {
            let (Withheld { local }, loss) = guard.validity.grant();
            let (mode, token, contended) = (guard.mode, guard.token(), contention.had_to_wait());
            self.handle.observer.granted(&Granted { name, mode, token, waited, contended, local });
            if let Some(loss) = loss {
                self.handle.observer.lost(name, &[(token, mode)], loss, None);
            }
        }
    }

    /// Reports that the request ended with this error: the name that the error is about was refused, and the request
    /// for the other names was cancelled.
    pub(crate) fn failed(mut self, error: Error) -> Error {
        self.is_ended = true;
        let error = match self.names.first() {
            Some(first) => error.of_name(&first.name),
            None => error,
        };
        self.report_ends(Some(&error));
        error
    }

    /// Reports the end of the request for each name.
    fn report_ends(&self, error: Option<&Error>) {
        let waited = self.handle.waited_since(self.since);
        for SetName { name, mode, contention } in &self.names {
            match error.filter(|error| error.name() == Some(name)) {
                Some(error) => self.handle.observer.refused(name, *mode, error, waited),
                None => self.handle.observer.cancelled(name, *mode, waited, contention.had_to_wait()),
            }
        }
    }
}

impl Drop for SetEvents {
    fn drop(&mut self) {
        if self.is_ended || !self.handle.is_own_process() {
            return;
        }
        let closed = self.handle.check_open().err().zip(self.names.first());
        let closed = closed.map(|(closed, first)| closed.of_name(&first.name));
        self.report_ends(closed.as_ref());
    }
}
