//! Injects the faults of the plan.

use std::{sync::Arc, time::Duration};

use leasehold_testkit::history::What;

use crate::{plan::Fault, scheduler::Scheduler, world::World};

/// Schedules a fault for its time in the plan. Does nothing for a fault of a single message: the network injects it.
pub(crate) fn schedule_fault(world: &Arc<World>, fault: &Fault) {
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
            world.inject(&fault);
        }
    });
}

impl World {
    /// Injects a fault now.
    fn inject(self: &Arc<Self>, fault: &Fault) {
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
            // This fault is counted when it happens, because the client may never read its clock that often.
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
                self.observe_now();
            }
            Fault::Failover { length, loses, skew, .. } => {
                self.storm(kind, length + Duration::from_nanos(skew.unsigned_abs()));
                self.network.take_down(now.after(length));
                self.network.fail_over(now.before(loses), skew);
                self.truths.forget();
                self.observe_now();
            }
        }
    }

    /// Records the server's state, because a fault may have changed it without a request.
    fn observe_now(self: &Arc<Self>) {
        let world = Arc::clone(self);
        self.scheduler.at(self.scheduler.now(), move || world.truths.observe());
    }

    /// Records a disturbance of the whole system, which lasts for `length` and for the recovery time after that.
    fn storm(&self, kind: &'static str, length: Duration) {
        self.journal.fault(kind);
        self.journal.storm(kind, length + self.plan.recovery());
    }
}
