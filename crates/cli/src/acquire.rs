//! Waiting for the lock, within one limit, and interrupted by signals.

use std::{cell::OnceCell, pin::pin, task::Poll, time::Duration};

use leasehold::{Error, Guard, Life, Locks, Request};
use nix::sys::signal::Signal;

use crate::{
    cgroup::Group,
    cmd::run::{interrupted, lock, waiting_failed},
    exit::{self, Failure},
    plan::{Run, Wait, Want},
    progress::Waiting,
    signals::ends_wait,
    sweep::{self, sweep},
    text,
    waiter::{Waiter, now},
};

/// How long it may take to find out who holds what is taken: the engine has just answered. After `--wait` is over it is to end.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AFTER_LIMIT: Duration = Duration::from_millis(100);

/// How long one question may take whether a pushed grant stands, and the pause until the next one, while the engine does not say.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
const CONFIRM_AGAIN: Duration = Duration::from_millis(100);

/// How the error of a name that is taken ends.
const BY_ANOTHER: &str = "it is held by another";

/// After which time a wait looks for what was left by runs that were killed as a whole, and how often then.
const SWEEP_FIRST: Duration = Duration::from_millis(100);
const SWEEP_AGAIN: Duration = Duration::from_secs(10);

/// When a wait that begins now is to end, if ever.
pub(crate) fn limit(plan: &Run) -> Option<Duration> {
    match plan.wait {
        Wait::Within(limit) => Some(now().saturating_add(limit)),
        Wait::Forever | Wait::Not => None,
    }
}

/// A grant that was pushed to a waiting claim is for less than the ttl. CMD starts under a whole lease, or not at all: while
/// the engine does not confirm it, this waits on, within the one limit of `--wait`.
pub(crate) fn acquire_whole(
    plan: &Run,
    locks: &Locks,
    waiter: &Waiter,
    until: Option<Duration>,
) -> Result<Guard, Failure> {
    let mut was_granted = false;
    loop {
        let Some(guard) = acquire(plan, locks, waiter, until, was_granted)? else { continue };
        was_granted = true;
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
        let left = until.map_or(CONFIRM_WITHIN, |until| until.saturating_sub(now()));
        let said = waiter.block_on(guard.confirm(), Some(left), stop).map_err(waiting_failed)?;
        if let Some(signal) = ended_by {
            return Err(interrupted(plan, locks, signal));
        }
        let trouble = match said {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) if error.is_lost() => return Ok(false),
            // However the outage is called: it stood in line for this.
            Some(Err(error)) if error.is_unknown() || error.is_unreachable() || error.is_refused() => {
                Some(error)
            }
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
        // The keeper renews it meanwhile.
        pause(plan, locks, waiter, until)?;
    }
}

/// Before the engine is asked again, if there is time for that. A signal ends it.
fn pause(plan: &Run, locks: &Locks, waiter: &Waiter, until: Option<Duration>) -> Result<(), Failure> {
    let left = until.map_or(CONFIRM_AGAIN, |until| until.saturating_sub(now()).min(CONFIRM_AGAIN));
    match waiter.wait(Some(left)).map_err(waiting_failed)? {
        Some(signal) if ends_wait(signal) => Err(interrupted(plan, locks, signal)),
        _ => Ok(()),
    }
}

/// `None`: who was granted it before is no newcomer, so that the engine refuses for now is waited out.
fn acquire(
    plan: &Run,
    locks: &Locks,
    waiter: &Waiter,
    until: Option<Duration>,
    was_granted: bool,
) -> Result<Option<Guard>, Failure> {
    let home = Home { locks, group: OnceCell::new() };
    let mut result = wait(plan, locks, waiter, until, &home)?;
    if let (Err(error), Wait::Not) = (&result, plan.wait)
        && error.is_taken()
        && let Some(home) = home.group()
        && sweep::begin(home, plan.verbose > 0)
    {
        // A try ends what was left, and tries once more.
        if let Some(signal) = sweep(home, false, waiter, ends_wait).map_err(waiting_failed)? {
            return Err(interrupted(plan, locks, signal));
        }
        result = wait(plan, locks, waiter, until, &Home { locks, group: OnceCell::new() })?;
    }
    match result {
        Err(error) if error.is_taken() => Err(taken(plan, locks, waiter, &error)?),
        Err(error) if error.is_refused() && was_granted => {
            pause(plan, locks, waiter, until)?;
            if until.is_some_and(|until| now() >= until) { Err(error.into()) } else { Ok(None) }
        }
        result => result.map(Some).map_err(Into::into),
    }
}

/// The control group below which processes may hold a lock that no run holds any more: they inherited its descriptor. It is looked
/// for when the name is not free.
struct Home<'a> {
    locks: &'a Locks,
    group: OnceCell<Option<Group>>,
}

impl Home<'_> {
    fn group(&self) -> Option<&Group> {
        let find = || (self.locks.profile().life == Life::Process).then(Group::own).and_then(Result::ok);
        self.group.get_or_init(find).as_ref()
    }
}

/// Waits for the lock, and ends what may hold it below `home` meanwhile.
fn wait(
    plan: &Run,
    locks: &Locks,
    waiter: &Waiter,
    until: Option<Duration>,
    home: &Home<'_>,
) -> Result<Result<Guard, Error>, Failure> {
    let request = request(plan, locks);
    let mut acquire = pin!(match (plan.wait, until) {
        (Wait::Not, _) => request.try_acquire(),
        (_, None) => request.acquire(),
        (_, Some(until)) => request.acquire_within(until.saturating_sub(now())),
    });
    let mut waiting = Waiting::new(plan, locks);
    let mut next_sweep = now().saturating_add(SWEEP_FIRST);
    loop {
        if let Poll::Ready(result) = waiter.poll(acquire.as_mut()) {
            return Ok(result);
        }
        let mut next_look = waiting.step(waiter);
        if plan.wait != Wait::Not
            && let Some(home) = home.group()
        {
            if now() >= next_sweep {
                sweep::begin(home, plan.verbose > 0);
                next_sweep = now().saturating_add(SWEEP_AGAIN);
            }
            let left = next_sweep.saturating_sub(now());
            next_look = Some(next_look.map_or(left, |next| next.min(left)));
        }
        match waiter.wait(next_look).map_err(waiting_failed)? {
            // Leaving drops the future, which gives up the place in line.
            Some(signal) if ends_wait(signal) => return Err(interrupted(plan, locks, signal)),
            Some(Signal::SIGTSTP) => waiter.signals().stop().map_err(waiting_failed)?,
            _ => {}
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

/// It was not acquired: who holds it, if that is soon known.
fn taken(plan: &Run, locks: &Locks, waiter: &Waiter, error: &Error) -> Result<Failure, Failure> {
    if plan.quiet {
        return Ok(Failure::silent(plan.conflict));
    }
    let within = if plan.wait == Wait::Not { LOOK_WITHIN } else { LOOK_AFTER_LIMIT };
    let look = waiter.block_on(locks.show(plan.name.as_str()), Some(within), ends_wait);
    let error = error.to_string();
    let held = match look.map_err(waiting_failed)? {
        Some(Ok(view)) => text::held_by(&view),
        _ => Some(format!("{BY_ANOTHER}: `leasehold show {}` tells by whom", text::word(plan.name.as_str()))),
    };
    let held = held.unwrap_or_else(|| format!("{BY_ANOTHER}: nobody holds it any more"));
    // Who it is, in place of another.
    let what = error.strip_suffix(BY_ANOTHER).unwrap_or(&error);
    Ok(Failure::new(plan.conflict, format!("{what}{held}")))
}
