//! `leasehold run`: acquire, run CMD, release.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, pin::pin, task::Poll, time::Duration};

use leasehold::{Connect, Error, ErrorKind, Guard, Life, Locks, Loss, Mode, Request};
use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    args::Nested,
    child::Child,
    exit::{self, Failure},
    plan::{Run, Wait, Want},
    signals::{Signals, ends_wait},
    spawn::{Spawn, become_cmd, spawn},
    supervise::{End, Supervisor},
    terminal::Terminal,
    waiter::{Waiter, now},
};

/// How long the end waits for the engine's word on the release: without it the lock is free when its lease has run out.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// How long the end waits to hear whether an exact hold still stood: its engine answers without a server.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);
/// How long the look may take whether this process was started under the hold that it asks for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// What CMD is told of the hold.
const NAME: &str = "LEASEHOLD_NAME";
const CLAIM: &str = "LEASEHOLD_CLAIM";
/// The pause between two questions whether a pushed grant stands, while the engine does not say.
const CONFIRM_AGAIN: Duration = Duration::from_millis(100);

/// Runs CMD under the lock; the exit code.
pub(crate) fn run(plan: Run) -> Result<u8, Failure> {
    // Before the engine starts its threads.
    let signals = Signals::take().map_err(|error| Failure::system("cannot take the signals", error))?;
    let waiter = Waiter::new(signals).map_err(|error| Failure::system("cannot wait for events", error))?;
    let connect = plan.owner.iter().fold(Connect::default(), |connect, owner| connect.owner(owner.label()));
    let locks = connect.connect(&plan.url)?;
    if nested(&plan, &locks, &waiter)? {
        let error = become_cmd(&plan.program, &plan.arguments, waiter.signals().found());
        return Err(not_started(&plan, error));
    }
    let guard = acquire_whole(&plan, &locks, &waiter)?;
    let child = start(&plan, &locks, &guard, &waiter)?;
    let end = Supervisor::new(&plan, &guard, &waiter, child).see_through().map_err(waiting_failed)?;
    match end {
        End::Lost { loss, code } => {
            drop(guard);
            Err(lost(&plan, &locks, loss, code))
        }
        End::Kept { code } => release(&plan, &locks, guard, &waiter, code),
    }
}

/// Whether the process holds the name by which this one was started, in a way that leaves no room, and CMD is to run under that hold.
fn nested(plan: &Run, locks: &Locks, waiter: &Waiter) -> Result<bool, Failure> {
    let is = |variable: &str, value: &str| std::env::var_os(variable).is_some_and(|found| found == value);
    let forever = plan.wait == Wait::Forever;
    if !is(NAME, plan.name.as_str()) || (plan.nested == Nested::Fail && !forever) {
        return Ok(false);
    }
    // Another engine or prefix may have the same name: only the hold itself tells. Who may not look waits.
    let seen = waiter.block_on(locks.show(plan.name.as_str()), Some(LOOK_WITHIN), ends_wait);
    let Some(Ok(view)) = seen.map_err(waiting_failed)? else { return Ok(false) };
    let alone = view.mode == Some(Mode::Exclusive) || plan.want == Want::Exclusive;
    let ours = view.holders.iter().any(|holder| is(CLAIM, &holder.id));
    match plan.nested {
        _ if !(ours && (alone || plan.nested == Nested::Ok)) => Ok(false),
        Nested::Ok => Ok(true),
        Nested::Fail => {
            let lock = lock(plan, locks);
            Err(Failure::new(
                exit::USAGE,
                format!(
                    "{lock}: held already by the process that started this one ({NAME} says so): waiting would never end: say \
                     --nested ok to run {} under that hold",
                    plan.program.display()
                ),
            ))
        }
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

/// A grant that was pushed to a waiting claim is for less than the ttl. CMD starts under a whole lease, or not at all: while
/// the engine does not confirm it, this waits on, within the one limit of `--wait`.
fn acquire_whole(plan: &Run, locks: &Locks, waiter: &Waiter) -> Result<Guard, Failure> {
    let until = match plan.wait {
        Wait::Within(limit) => Some(now().saturating_add(limit)),
        Wait::Forever | Wait::Not => None,
    };
    loop {
        let guard = acquire(plan, locks, waiter, until)?;
        if guard.remaining().is_none_or(|left| left > plan.ttl / 2) {
            return Ok(guard);
        }
        if confirmed(plan, locks, waiter, &guard, until)? {
            return Ok(guard);
        }
    }
}

/// Whether the engine says that the hold stands. False: it was over before it began, so it is back to the line.
fn confirmed(
    plan: &Run,
    locks: &Locks,
    waiter: &Waiter,
    guard: &Guard,
    until: Option<Duration>,
) -> Result<bool, Failure> {
    loop {
        let mut ended_by = None;
        let stop = |signal| ends_wait(signal) && ended_by.replace(signal).is_none();
        let left = until.map_or(RELEASE_WITHIN, |until| until.saturating_sub(now()));
        let said = waiter.block_on(guard.confirm(), Some(left), stop).map_err(waiting_failed)?;
        if let Some(signal) = ended_by {
            return Err(interrupted(plan, locks, signal));
        }
        let trouble = match said {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) if error.is_lost() => return Ok(false),
            Some(Err(error)) if error.is_unknown() || error.is_unreachable() => Some(error),
            Some(Err(error)) => return Err(error.into()),
            None => None,
        };
        if until.is_some_and(|until| now() >= until) {
            let lock = lock(plan, locks);
            return Err(trouble.map_or_else(
                || {
                    Failure::new(
                        exit::UNAVAILABLE,
                        format!("{lock}: granted, but not confirmed within --wait"),
                    )
                },
                Into::into,
            ));
        }
        // The keeper renews it meanwhile; a signal is heard at the next turn.
        if let Some(signal) = waiter.wait(Some(CONFIRM_AGAIN)).map_err(waiting_failed)?
            && ends_wait(signal)
        {
            return Err(interrupted(plan, locks, signal));
        }
    }
}

fn acquire(plan: &Run, locks: &Locks, waiter: &Waiter, until: Option<Duration>) -> Result<Guard, Failure> {
    let request = request(plan, locks);
    let mut acquire = pin!(match (plan.wait, until) {
        (Wait::Not, _) => request.try_acquire(),
        (_, None) => request.acquire(),
        (_, Some(until)) => request.acquire_within(until.saturating_sub(now())),
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

/// Whether there is a program of this name, where the system looks for one.
fn is_there(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

fn not_started(plan: &Run, error: std::io::Error) -> Failure {
    let (program, name) = (plan.program.display(), plan.name.as_str());
    let message = |what: &str| format!("cannot run {program} under lock {name:?}: {what}");
    let what = error.to_string();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) if is_there(&plan.program) => {
            Failure::new(exit::NOT_FOUND, message("the interpreter that its first line names is not found"))
        }
        Some(Errno::ENOENT) => {
            Failure::new(exit::NOT_FOUND, message("it is not found: check its name and PATH"))
        }
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => {
            Failure::new(exit::UNAVAILABLE, message(&format!("{what}: raise the limits of this user")))
        }
        _ => Failure::new(exit::NOT_EXECUTABLE, message(&format!("{what}: is it executable?"))),
    }
}

fn start(plan: &Run, locks: &Locks, guard: &Guard, waiter: &Waiter) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| not_started(plan, error);
    let terminal = Terminal::find();
    let group = spawn(Spawn {
        program: plan.program.clone(),
        arguments: plan.arguments.clone(),
        variables: [
            (NAME, plan.name.as_str().to_owned()),
            (CLAIM, guard.id().to_string()),
            ("LEASEHOLD_TOKEN", guard.token().to_string()),
            ("LEASEHOLD_LINEAGE", guard.token().lineage.to_string()),
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
            return Err(lost(plan, locks, loss, code));
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
            ErrorKind::Lost(loss) => return Err(lost(plan, locks, loss, code)),
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

fn lost(plan: &Run, locks: &Locks, loss: Loss, code: u8) -> Failure {
    let (lock, program) = (lock(plan, locks), plan.program.display());
    let why = match loss {
        Loss::Lapsed if !plan.renew => "its lease ended, which --no-renew does not renew".to_owned(),
        Loss::MaxHold => "--max-hold ended".to_owned(),
        loss => loss.to_string(),
    };
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
