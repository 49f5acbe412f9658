//! Writes to the protected resource, with a fence and without one.

use super::{CHECKS, active_hold::ActiveHold, attempt::Attempt};
use crate::resource::Overtaken;
use leasehold_testkit::history::What;

impl Attempt<'_> {
    /// Shows the token to the fence, reads the list, and writes it back with one more element.
    pub(super) async fn write_fenced(&self, active_hold: &ActiveHold<'_>, number: u32) {
        let (token, name) = (active_hold.guard.token().number, self.lock.name);
        if !self.may_write(active_hold) {
            return;
        }
        let (visit, element) = (&self.user.resources, self.element(number));
        self.record(What::WriteInv { to: name.to_owned(), token, element });
        let process = self.user.actor.process;
        let written = match visit.visit(process, name, move |lists| lists.seal(token)).await {
            Err(overtaken) => Err(overtaken),
            Ok(mut elements) => {
                elements.push(element);
                visit.visit(process, name, move |lists| lists.write_fenced(token, elements)).await
            }
        };
        match written {
            Ok(()) => {
                visit.acknowledge(name, |lists| &mut lists.fenced, element);
                self.record(What::WriteOk { element });
            }
            Err(Overtaken) => self.record(What::WriteFenced { element }),
        }
    }

    /// Reads the list without a fence, and writes it back with one more element.
    pub(super) async fn write_unfenced(&self, active_hold: &ActiveHold<'_>, number: u32) {
        let (name, process) = (self.lock.name, self.user.actor.process);
        let (visit, element) = (&self.user.resources, self.element(number));
        if !self.may_write(active_hold) {
            return;
        }
        let mut elements = visit.visit(process, name, |lists| lists.unfenced.read()).await;
        elements.push(element);
        if self.may_write(active_hold) {
            visit.visit(process, name, move |lists| lists.unfenced.write(elements)).await;
            visit.acknowledge(name, |lists| &mut lists.unfenced, element);
        }
    }

    /// Whether the user writes now. A user that is not stubborn writes only if a check finds the hold valid.
    fn may_write(&self, active_hold: &ActiveHold<'_>) -> bool {
        self.op.stubborn || active_hold.guard.check()
    }

    /// The element of the write with this number. It is unique in the run.
    fn element(&self, number: u32) -> u64 {
        self.id * u64::from(CHECKS) + u64::from(number)
    }
}
