//! `leasehold acquire`: acquires a lock that outlasts the command, and prints a handle.

use std::sync::Arc;

use leasehold::{Connect, Guard, Locks, Owner};

use super::run::{RELEASE_LIMIT, lock_label, wait_failure};
use crate::{
    acquire::{acquire_confirmed, wait_deadline},
    args,
    event_loop::EventLoop,
    exit::{self, Failure},
    handle::{HandleFile, output, remove_older, site_of},
    holder::{
        directory::with_absolute_paths,
        hold,
        process::{Role, split},
        watched::Watched,
    },
    holds::Acquired,
    log,
    nested::nested,
    plan::{self, Run},
    progress::{AwaitedName, RenewalTrouble},
    signals::Signals,
    source::Given,
    warnings,
};

/// The process that never ends before its container or machine.
const FIRST_PROCESS: i32 = 1;

/// Acquires the lock. The handle is written only after the grant.
pub(crate) fn acquire(
    args: args::Acquire,
    given: impl FnOnce() -> Result<Given, Failure>,
) -> Result<u8, Failure> {
    args.handle_file.as_deref().map(remove_older).transpose()?;
    let mut plan = plan::Acquire::new(args, given)?;
    // If the directory of the step is gone, a relative path has no meaning.
    if plan.while_pid.is_some()
        && let Ok(directory) = std::env::current_dir()
    {
        plan.run.url = with_absolute_paths(&plan.run.url, &directory).into();
    }
    let plan = &plan;
    // Signals are blocked before the engine starts its threads, because threads inherit the mask.
    let signals = Signals::take().map_err(|error| Failure::system("cannot read signals", error))?;
    match plan.while_pid {
        Some(pid) => with_holder(plan, pid, signals),
        None => without_process(plan, signals),
    }
}

/// Leaves the hold to a lease, which no process renews.
fn without_process(plan: &plan::Acquire, signals: Signals) -> Result<u8, Failure> {
    let file = plan.handle_file.as_deref().map(HandleFile::new).transpose()?;
    let event_loop = EventLoop::new(signals, None).map_err(wait_failure)?;
    let (locks, guard) =
        grant(&plan.run, &event_loop, owner_without_process, |locks| match locks.profile().no_handles {
            None => Ok(()),
            Some(reason) => {
                let lock = lock_label(&plan.run, locks);
                let advice = "give --while-pid PID, the process for whose life to hold it";
                Err(Failure::new(
                    exit::USAGE,
                    format!("{lock}: nothing would hold it, because {reason}: {advice}"),
                ))
            }
        })?;
    // If this fails, the drop of the guard releases the hold. A handle that is written is of a hold that was left.
    let handle = guard.into_handle()?.with_site(site_of(&plan.run.url));
    let Err(failure) = output(&handle, file) else { return Ok(exit::DONE) };
    // Nobody has the handle. If the engine does not answer, the hold ends with its lease.
    let _ = event_loop.block_on(locks.release_handle(&handle), Some(RELEASE_LIMIT), |_| false);
    Err(failure)
}

/// The default owner of a hold that no process has: an operator must not look for one.
fn owner_without_process() -> Owner {
    let of_process = Owner::of_process(0);
    let place = of_process.label().trim_end_matches(":0");
    Owner::new(&format!("{place} without a process"))
}

/// Leaves the hold to a holder process, for the life of the process `pid`.
fn with_holder(plan: &plan::Acquire, pid: i32, signals: Signals) -> Result<u8, Failure> {
    if pid == FIRST_PROCESS && plan.run.max_hold.is_none() {
        let message = "--while-pid 1: this process does not end before its container or machine: \
                       give the process that does the work, or --max-hold";
        return Err(Failure::new(exit::USAGE, message));
    }
    let watched = Watched::open(pid)?;
    let cannot_start = |error| Failure::system("cannot start the holder process", error);
    let starter = match split(signals, &watched).map_err(cannot_start)? {
        Role::Holder(link, event_loop) => return hold::keep(plan, &watched, link, &event_loop),
        Role::Starter(starter) => starter,
    };
    let written = plan.handle_file.as_deref().map(HandleFile::new).transpose().and_then(|file| {
        let handle = starter.wait_for_grant(plan, &watched)?;
        output(&handle, file)
    });
    match written {
        Ok(()) => starter.confirm(plan).map(|()| exit::DONE),
        Err(failure) => {
            starter.end_holder();
            Err(failure)
        }
    }
}

/// Connects, waits for the lock, and returns the guard of a lease that is long enough for a later command.
pub(crate) fn grant(
    plan: &Run,
    event_loop: &EventLoop,
    owner: impl FnOnce() -> Owner,
    check_engine: impl FnOnce(&Locks) -> Result<(), Failure>,
) -> Result<(Locks, Guard), Failure> {
    log::start(plan.verbose);
    let owner = plan.owner.clone().unwrap_or_else(owner);
    let awaited = Arc::new(AwaitedName::default());
    let owner = Owner::of_task(owner.label(), plan.actor);
    let connect = Connect::default().owner(owner.label()).observe(RenewalTrouble::of(plan));
    let locks = connect.observe(Arc::clone(&awaited) as _).connect(&plan.url)?;
    check_engine(&locks)?;
    let deadline = wait_deadline(plan);
    nested(plan, &locks, event_loop, deadline)?;
    warnings::print(plan, &locks);
    match acquire_confirmed(plan, &locks, &awaited, event_loop, deadline)? {
        Acquired::Names(guards) => match guards.split().pop() {
            Some(guard) => Ok((locks, guard)),
            None => {
                Err(Failure::new(exit::BUG, format!("{}: granted without a guard", lock_label(plan, &locks))))
            }
        },
        Acquired::Lead(_) => Err(Failure::new(exit::BUG, "a lock was wanted, and an election answered")),
    }
}
