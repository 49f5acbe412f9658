//! `leasehold run`: acquire, run CMD, release.

use std::{pin::pin, task::Poll, time::Duration};

use leasehold::{Connect, Error, ErrorKind, Guard, Life, Locks, Loss, Request};
use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    child::Child,
    exit::{self, Failure},
    plan::{Run, Wait, Want},
    signals::{Signals, ends_wait},
    spawn::{Spawn, spawn},
    supervise::{End, Supervisor},
    terminal::Terminal,
    waiter::Waiter,
};

/// How long the end waits for the engine's word on the release: without it the lock is free when its lease has run out.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// How long the end waits to hear whether an exact hold still stood: its engine answers without a server.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);

/// Runs CMD under the lock; the exit code.
pub(crate) fn run(plan: Run) -> Result<u8, Failure> {
    // Before the engine starts its threads.
    let signals = Signals::take().map_err(|error| Failure::system("cannot take the signals", error))?;
    let waiter = Waiter::new(signals).map_err(|error| Failure::system("cannot wait for events", error))?;
    let connect = plan.owner.iter().fold(Connect::default(), |connect, owner| connect.owner(owner.label()));
    let locks = connect.connect(&plan.url)?;
    let guard = acquire_whole(&plan, &locks, &waiter)?;
    let child = start(&plan, &locks, &guard, &waiter)?;
    let end = Supervisor::new(&plan, &locks, &guard, &waiter, child).see_through().map_err(waiting_failed)?;
    match end {
        End::Lost { loss, code } => {
            drop(guard);
            Err(lost(&plan, &locks, loss, code))
        }
        End::Kept { code } => release(&plan, &locks, guard, &waiter, code),
    }
}

fn request(plan: &Run, locks: &Locks) -> Request {
    let name = plan.name.as_str();
    let request = match plan.want {
        Want::Exclusive => locks.mutex(name),
        Want::Shared => locks.rw(name).read(),
        Want::Permits { count, limit } => locks.semaphore(name, limit).permits(count),
    };
    let request = request.ttl(plan.ttl).renew(plan.renew).stops_on_term(true);
    plan.max_hold.into_iter().fold(request, Request::max_hold)
}

/// A grant that was pushed to a waiting claim is for less than the ttl, perhaps for less than the grace. CMD starts under a
/// whole lease, or not at all.
fn acquire_whole(plan: &Run, locks: &Locks, waiter: &Waiter) -> Result<Guard, Failure> {
    loop {
        let guard = acquire(plan, locks, waiter)?;
        if guard.remaining().is_none_or(|left| left > plan.ttl / 2) {
            return Ok(guard);
        }
        let mut ended_by = None;
        let stop = |signal| ends_wait(signal) && ended_by.replace(signal).is_none();
        match waiter.block_on(guard.confirm(), Some(RELEASE_WITHIN), stop).map_err(waiting_failed)? {
            Some(Ok(())) => return Ok(guard),
            Some(Err(error)) if !(error.is_lost() || error.is_unknown()) => return Err(refused(plan, error)),
            // It was over before it began: back to the line.
            _ => drop(guard),
        }
        if let Some(signal) = ended_by {
            return Err(interrupted(plan, locks, signal));
        }
    }
}

fn acquire(plan: &Run, locks: &Locks, waiter: &Waiter) -> Result<Guard, Failure> {
    let request = request(plan, locks);
    let mut acquire = pin!(match plan.wait {
        Wait::Forever => request.acquire(),
        Wait::Within(limit) => request.acquire_within(limit),
        Wait::Not => request.try_acquire(),
    });
    loop {
        if let Poll::Ready(result) = waiter.poll(acquire.as_mut()) {
            return result.map_err(|error| refused(plan, error));
        }
        match waiter.wait(None).map_err(waiting_failed)? {
            // Leaving drops the future, which gives up the place in line.
            Some(signal) if ends_wait(signal) => return Err(interrupted(plan, locks, signal)),
            Some(Signal::SIGTSTP) => waiter.signals().stop().map_err(waiting_failed)?,
            _ => {}
        }
    }
}

fn start(plan: &Run, locks: &Locks, guard: &Guard, waiter: &Waiter) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        let (program, name) = (plan.program.display(), plan.name.as_str());
        let message = |what| format!("cannot run {program} under lock {name:?}: {what}");
        let what = error.to_string();
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {
                Failure::new(exit::NOT_FOUND, message("it is not found: check its name and PATH".into()))
            }
            Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => {
                Failure::new(exit::UNAVAILABLE, message(format!("{what}: raise the limits of this user")))
            }
            _ => Failure::new(exit::NOT_EXECUTABLE, message(format!("{what}: is it executable?"))),
        }
    };
    let terminal = Terminal::find();
    let group = spawn(Spawn {
        program: plan.program.clone(),
        arguments: plan.arguments.clone(),
        variables: [
            ("LEASEHOLD_NAME", plan.name.as_str().to_owned()),
            ("LEASEHOLD_TOKEN", guard.token().to_string()),
        ],
        found: waiter.signals().found(),
        lock: if plan.pass_descriptor { descriptor(locks, guard).map_err(failed)? } else { None },
        terminal: match &terminal {
            Some(terminal) => terminal.for_start().map_err(failed)?,
            None => None,
        },
    })
    .map_err(failed)?;
    Ok(Child::new(group, terminal))
}

#[cfg(feature = "file")]
fn descriptor(locks: &Locks, guard: &Guard) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
    locks.descriptor(guard)
}

#[cfg(not(feature = "file"))]
fn descriptor(_: &Locks, _: &Guard) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
    Ok(None)
}

/// CMD has ended, and nothing was heard of a loss.
fn release(plan: &Run, locks: &Locks, guard: Guard, waiter: &Waiter, code: u8) -> Result<u8, Failure> {
    if locks.profile().life == Life::Process {
        // Such a hold is looked at now and then only. Others say so when they are released.
        let confirmed = waiter.block_on(guard.confirm(), Some(CONFIRM_WITHIN), ends_wait);
        if let Some(Err(error)) = confirmed.map_err(waiting_failed)?
            && let ErrorKind::Lost(loss) = error.kind()
        {
            return Err(lost(plan, locks, Some(loss), code));
        }
    }
    let released = match plan.at_least {
        Some(at_least) if code == exit::DONE && !locks.profile().can_keep => {
            match keep(locks, guard, at_least, waiter).map_err(waiting_failed)? {
                Kept::Cut(signal) => return Err(cut(plan, locks, signal, code)),
                Kept::Said(released) => Ok(released),
            }
        }
        Some(at_least) if code == exit::DONE => {
            waiter.block_on(guard.release_at_least(at_least), Some(RELEASE_WITHIN), ends_wait)
        }
        _ => waiter.block_on(guard.release(), Some(RELEASE_WITHIN), ends_wait),
    };
    let why = match released.map_err(waiting_failed)? {
        Some(Ok(())) => return Ok(code),
        Some(Err(error)) => match error.kind() {
            ErrorKind::Lost(loss) => return Err(lost(plan, locks, Some(loss), code)),
            _ => error.to_string(),
        },
        None => "no answer".to_owned(),
    };
    // CMD did run to its end under the lock.
    let lock = lock(plan, locks);
    let message =
        format!("{lock}: not released ({why}): it is free when its lease has run out, at the latest");
    Err(Failure::new(code, message))
}

/// What became of a name that this process itself keeps.
enum Kept {
    /// What was said of its release, if anything was.
    Said(Option<Result<(), Error>>),
    /// A signal came before its time.
    Cut(Signal),
}

/// Stays until the name was kept for its time, as an engine does not by itself.
fn keep(locks: &Locks, guard: Guard, at_least: Duration, waiter: &Waiter) -> Result<Kept, Errno> {
    let mut kept = pin!(guard.release_at_least(at_least));
    let mut ended_by = None;
    let stop = |signal| ends_wait(signal) && ended_by.replace(signal).is_none();
    let released = waiter.block_on(kept.as_mut(), Some(at_least + RELEASE_WITHIN), stop)?;
    let Some(signal) = ended_by else { return Ok(Kept::Said(released)) };
    waiter.block_on(locks.close(Duration::ZERO), Some(RELEASE_WITHIN), |_| false)?;
    // Its release is sent then, and answered before this process ends.
    waiter.block_on(kept, Some(RELEASE_WITHIN), |_| false)?;
    Ok(Kept::Cut(signal))
}

fn cut(plan: &Run, locks: &Locks, signal: Signal, code: u8) -> Failure {
    let (lock, signal) = (lock(plan, locks), signal.as_str());
    Failure::new(code, format!("{lock}: not kept for --at-least: {signal} ended it before"))
}

fn refused(plan: &Run, error: Error) -> Failure {
    if !error.is_taken() {
        return error.into();
    }
    if plan.quiet {
        return Failure::silent(plan.conflict);
    }
    Failure::new(plan.conflict, format!("{error}: `leasehold show` tells by whom"))
}

fn interrupted(plan: &Run, locks: &Locks, signal: Signal) -> Failure {
    let code = exit::by_signal(signal);
    if plan.quiet {
        return Failure::silent(code);
    }
    let lock = lock(plan, locks);
    Failure::new(code, format!("{lock}: not acquired: {} ended the wait", signal.as_str()))
}

fn lost(plan: &Run, locks: &Locks, loss: Option<Loss>, code: u8) -> Failure {
    let (lock, program) = (lock(plan, locks), plan.program.display());
    let why = loss.map_or_else(|| "no renewal was acknowledged in time".to_owned(), |loss| loss.to_string());
    Failure::new(
        exit::LOST,
        format!(
            "{lock}: lost while {program} ran, which ended with {code}: {why}: check what it has left half-done"
        ),
    )
}

fn lock(plan: &Run, locks: &Locks) -> String {
    format!("{} lock {:?}", locks.profile().engine, plan.name.as_str())
}

fn waiting_failed(error: Errno) -> Failure {
    Failure::new(exit::BUG, format!("cannot wait for events: {error}"))
}
