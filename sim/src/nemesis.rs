//! Makes go wrong what the plan says.

use std::{sync::Arc, time::Duration};

use leasehold_testkit::history::What;

use crate::{plan::Fault, scheduler::Scheduler, world::World};

/// A fault will happen in its time. Those of single messages are the wire's.
pub(crate) fn arm(world: &Arc<World>, fault: &Fault) {
    let (at, fault) = match *fault {
        Fault::Request { .. } | Fault::Notification { .. } => return,
        Fault::Stop { at, .. }
        | Fault::StopAtReading { at, .. }
        | Fault::Crash { at, .. }
        | Fault::Reset { at, .. }
        | Fault::Cut { at, .. }
        | Fault::Lag { at, .. }
        | Fault::Stall { at, .. }
        | Fault::Restart { at, .. }
        | Fault::Step { at, .. }
        | Fault::Failover { at, .. } => (at, *fault),
    };
    let scheduler = Arc::clone(&world.scheduler);
    let world = Arc::clone(world);
    scheduler.at(Scheduler::instant(at), move || {
        if !world.is_over() {
            world.disturb(&fault);
        }
    });
}

impl World {
    fn disturb(self: &Arc<Self>, fault: &Fault) {
        let now = self.scheduler.now();
        let kind = fault.kind();
        match *fault {
            Fault::Request { .. } | Fault::Notification { .. } => {}
            Fault::Stop { client, length, sleeps, .. } => {
                let group = self.groups[client];
                if self.scheduler.stop(group, length, sleeps) {
                    self.journal.fault(kind);
                    self.journal.note("", What::Stop { victim: group.number() });
                    let world = Arc::clone(self);
                    self.scheduler.at(now.after(length), move || {
                        world.scheduler.cont(group);
                        world.journal.note("", What::Cont { victim: group.number() });
                    });
                }
            }
            // Counted when it happens, if it does.
            Fault::StopAtReading { client, readings, length, moment, .. } => {
                self.scheduler.stop_at_reading(self.groups[client], readings, length, moment);
            }
            Fault::Crash { client, unnoticed, .. } => {
                let group = self.groups[client];
                if self.scheduler.is_alive(group) {
                    self.journal.fault(kind);
                    self.journal.note("", What::Crash { victim: group.number() });
                    self.scheduler.kill(group);
                    if !unnoticed {
                        self.network.hang_up(group);
                    }
                }
            }
            Fault::Reset { client, .. } => {
                self.journal.fault(kind);
                self.network.reset(self.groups[client]);
            }
            Fault::Cut { client, length, way, .. } => {
                self.storm(kind, length);
                self.network.cut(self.groups[client], way, now.after(length));
            }
            Fault::Lag { length, late, .. } => {
                self.journal.fault(kind);
                self.network.lag(now.after(length), late);
            }
            Fault::Stall { length, .. } => {
                self.storm(kind, length);
                self.network.stall(now.after(length));
            }
            Fault::Restart { length, .. } => {
                self.storm(kind, length);
                self.network.take_down(now.after(length));
            }
            Fault::Step { by, .. } => {
                self.storm(kind, Duration::from_nanos(by.unsigned_abs()));
                self.network.set_clock(by);
                if by > 0 {
                    self.truths.forget();
                }
                self.look_now();
            }
            Fault::Failover { length, loses, skew, .. } => {
                self.storm(kind, length + Duration::from_nanos(skew.unsigned_abs()));
                self.network.take_down(now.after(length));
                self.network.fail_over(now.before(loses), skew);
                self.truths.forget();
                self.look_now();
            }
        }
    }

    /// What the server knows may be other than it was.
    fn look_now(self: &Arc<Self>) {
        let world = Arc::clone(self);
        self.scheduler.at(self.scheduler.now(), move || world.truths.look());
    }

    /// The whole system is disturbed for so long, and for as long as it takes after that until all is in order again.
    fn storm(&self, kind: &'static str, length: Duration) {
        self.journal.fault(kind);
        self.journal.storm(kind, length + self.plan.recovery());
    }
}
