//! Acquires the lock for `leasehold run`: one time limit for everything, and signals interrupt the wait.

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

/// The time limit for finding out who holds a lock that is taken. It is short because the engine has just answered. The
/// second limit applies when `--wait` has passed, because the command is to end then.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AFTER_LIMIT: Duration = Duration::from_millis(100);

/// The time limit for one request that confirms a pushed grant, and the pause before the next request while the engine
/// gives no answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
const CONFIRM_AGAIN: Duration = Duration::from_millis(100);

/// The end of the error message for a name that is taken.
const BY_ANOTHER: &str = "it is held by another";

/// When a waiting run first looks for processes that killed runs have left behind, and how often it looks again.
const SWEEP_FIRST: Duration = Duration::from_millis(100);
const SWEEP_AGAIN: Duration = Duration::from_secs(10);

/// When a wait that begins now has to end. `None`: it waits without a limit.
pub(crate) fn limit(plan: &Run) -> Option<Duration> {
    match plan.wait {
        Wait::Within(limit) => Some(now().saturating_add(limit)),
        Wait::Forever | Wait::Not => None,
    }
}

/// Acquires the lock with a lease that is long enough to start CMD. The grant that an engine pushes to a waiting claim
/// is shorter than the ttl, so it is confirmed with the engine before CMD starts. Without a confirmation CMD does not
/// start, and this function waits on, up to the limit of `--wait`.
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

/// Whether the engine confirms the hold. `false`: the hold was lost before CMD started, and the claim has to queue
/// again.
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
        let answer = waiter.block_on(guard.confirm(), Some(left), stop).map_err(waiting_failed)?;
        if let Some(signal) = ended_by {
            return Err(interrupted(plan, locks, signal));
        }
        let trouble = match answer {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) if error.is_lost() => return Ok(false),
            // The kinds of error for an outage. This run has waited for its grant, so it does not give it up because of
            // an outage.
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
        // The keeper renews the hold meanwhile.
        pause(plan, locks, waiter, until)?;
    }
}

/// Waits before the next request to the engine, for as long as the limit allows. A signal ends the wait with an error.
fn pause(plan: &Run, locks: &Locks, waiter: &Waiter, until: Option<Duration>) -> Result<(), Failure> {
    let left = until.map_or(CONFIRM_AGAIN, |until| until.saturating_sub(now()).min(CONFIRM_AGAIN));
    match waiter.wait(Some(left)).map_err(waiting_failed)? {
        Some(signal) if ends_wait(signal) => Err(interrupted(plan, locks, signal)),
        _ => Ok(()),
    }
}

/// One attempt to acquire the lock. `None`: the engine refuses for now, and the caller tries again. Only a run that was
/// granted the lock before (`was_granted`) waits out a refusal; for any other run it is an error.
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
        // With `--nonblock` the run ends what was left behind, and then tries once more.
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

/// The control group whose descendants may include processes that inherited the lock's descriptor from a run that is
/// gone. It is looked up only when the name is not free.
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

/// Waits for the lock. Meanwhile it ends processes below `home` that keep the lock without a run.
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
            // Returning drops the future, and that removes the claim from the queue.
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

/// The failure for a lock that was not acquired. It names the holder if the engine answers soon.
fn taken(plan: &Run, locks: &Locks, waiter: &Waiter, error: &Error) -> Result<Failure, Failure> {
    if plan.quiet {
        return Ok(Failure::silent(plan.conflict));
    }
    let within = if plan.wait == Wait::Not { LOOK_WITHIN } else { LOOK_AFTER_LIMIT };
    let look = waiter.block_on(locks.show(plan.name.as_str()), Some(within), ends_wait);
    let error = error.to_string();
    let held = match look.map_err(waiting_failed)? {
        Some(Ok(view)) => text::held_by(&view),
        _ => Some(format!(
            "{BY_ANOTHER}: `leasehold show {}` shows the holder",
            text::word(plan.name.as_str())
        )),
    };
    let held = held.unwrap_or_else(|| "it was held by another and is free now".to_owned());
    // Names the holder instead of "another".
    let what = error.strip_suffix(BY_ANOTHER).unwrap_or(&error);
    Ok(Failure::new(plan.conflict, format!("{what}{held}")))
}
