//! Acquires the lock for CMD, with one time limit for all steps. Signals end the wait.

use std::{cell::OnceCell, pin::Pin, task::Poll, time::Duration};

use leasehold::{All, Election, Error, Life, Locks, Pace};
use leasehold_ops::Reached;
use nix::sys::signal::Signal;

use crate::{
    cgroup::Group,
    cmd::run::{label_of, lock_label, wait_failure, wait_interrupted},
    cycle_check::CycleCheck,
    event_loop::{EventLoop, now},
    exit::{self, Failure},
    holds::{Acquired, Holds},
    plan::{Purpose, Run, Wait, WantedMode},
    progress::{AwaitedName, WaitMessages},
    signals::interrupts_wait,
    sweep::{self, sweep},
    text, warnings,
};

/// The time limit of the request that asks who holds a lock that is taken. It is short, because the engine has just
/// answered the claim and so can be reached.
const SHOW_LIMIT: Duration = Duration::from_secs(1);
/// The time limit of the request for the holder when the limit of `--wait` has passed. It is shorter than
/// [`SHOW_LIMIT`], because the command has to end then.
const SHOW_LIMIT_AFTER_WAIT: Duration = Duration::from_millis(100);

/// The time limit of the request that asks how many others wait.
const WAITING_LIMIT: Duration = Duration::from_secs(5);

/// The time limit for one request that confirms a pushed grant.
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);
/// The pause before a run repeats a request to which the engine gave no answer or an error.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);

/// The end of the error message for a name that is taken.
const HELD_BY_ANOTHER: &str = "it is held by another";

/// How long a run waits for the lock before it first looks for processes that killed runs have left behind.
const FIRST_SWEEP: Duration = Duration::from_millis(100);
/// The interval at which a waiting run looks again for processes that killed runs have left behind.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// One attempt to acquire the lock.
pub(crate) type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'a>>;

/// When a wait that begins now has to end. `None`: the run waits without a limit.
pub(crate) fn wait_deadline(plan: &Run) -> Option<Duration> {
    match plan.wait {
        Wait::Within(limit) => Some(now().saturating_add(limit)),
        Wait::Forever | Wait::Not => None,
    }
}

/// Acquires the lock with a lease that is long enough to start CMD: see [`is_confirmed`].
pub(crate) fn acquire_confirmed(
    plan: &Run,
    locks: &Locks,
    awaited: &AwaitedName,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
) -> Result<Acquired, Failure> {
    check_waiting(plan, locks, event_loop, deadline)?;
    let attempt = |remaining| attempt(plan, locks, remaining);
    let mut was_granted = false;
    loop {
        let acquired = acquire(plan, locks, awaited, event_loop, deadline, was_granted, &attempt)?;
        let Some(acquired) = acquired else { continue };
        was_granted = true;
        if is_confirmed(plan, locks, event_loop, acquired.holds(), deadline)? {
            return Ok(acquired);
        }
    }
}

/// Whether CMD may start under these holds. The grant that an engine pushes to a waiting claim is shorter than the ttl,
/// so the engine has to confirm it before CMD starts. This function waits for the confirmation. If the limit of
/// `--wait` passes first, it returns an error. Returns `false` if the hold was lost; then the caller makes a new claim.
pub(crate) fn is_confirmed(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    holds: Holds<'_>,
    deadline: Option<Duration>,
) -> Result<bool, Failure> {
    if holds.remaining().is_none_or(|remaining| remaining > plan.ttl / 2) {
        return Ok(true);
    }
    confirm(plan, locks, event_loop, holds, deadline)
}

/// With `--max-waiting`: fails if as many others wait for one of the names already. The answer may be outdated when
/// this run enters the queue, so a few more than the limit may wait for a moment.
fn check_waiting(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
) -> Result<(), Failure> {
    let Some(limit) = plan.max_waiting else { return Ok(()) };
    for name in plan.names() {
        let lock = label_of(name, locks);
        let time_limit =
            deadline.map_or(WAITING_LIMIT, |deadline| deadline.saturating_sub(now()).min(WAITING_LIMIT));
        let shown = wait_for_answer(plan, locks, event_loop, time_limit, locks.show(name.as_str()))?;
        let Some(view) = shown else {
            let message =
                format!("{lock}: the engine did not say within {time_limit:.0?} how many others wait");
            return Err(Failure::new(exit::UNAVAILABLE, message));
        };
        let waiting = view?.waiters.len();
        if waiting < limit {
            continue;
        }
        let message =
            format!("{lock}: not acquired: busy: waiting already: {waiting}, --max-waiting: {limit}");
        return Err(Failure::new(plan.not_acquired_code, message).hidden(plan.quiet));
    }
    Ok(())
}

/// Confirms the hold with the engine, and returns `true`. Returns `false` if the hold was lost before CMD started; then
/// the run has to make a new claim, which queues again. Fails if `deadline` passes first.
fn confirm(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    holds: Holds<'_>,
    deadline: Option<Duration>,
) -> Result<bool, Failure> {
    loop {
        let remaining = deadline.map_or(CONFIRM_LIMIT, |deadline| deadline.saturating_sub(now()));
        let answer = wait_for_answer(plan, locks, event_loop, remaining, holds.confirm())?;
        let last_error = match answer {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) if error.is_lost() => return Ok(false),
            // These errors come from an outage. This run has waited for its grant, so it does not give up the grant
            // because of an outage.
            Some(Err(error)) if error.is_unknown() || error.is_unreachable() || error.is_refused() => {
                Some(error)
            }
            Some(Err(error)) => return Err(error.into()),
            None => None,
        };
        if deadline.is_some_and(|deadline| now() >= deadline) {
            let lock = lock_label(plan, locks);
            return Err(last_error.map_or_else(
                || {
                    Failure::new(
                        exit::UNAVAILABLE,
                        format!("{lock}: granted, but not confirmed within --wait"),
                    )
                },
                Into::into,
            ));
        }
        // The keeper renews the hold during the pause.
        pause(plan, locks, event_loop, deadline)?;
    }
}

/// Waits for the answer to one request; `None` if it does not come within `time_limit`. A signal that ends the wait is
/// an error.
fn wait_for_answer<T>(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    time_limit: Duration,
    request: impl Future<Output = T>,
) -> Result<Option<T>, Failure> {
    let mut ended_by = None;
    let stop = |signal| interrupts_wait(signal) && ended_by.replace(signal).is_none();
    let answer = event_loop.block_on(request, Some(time_limit), stop).map_err(wait_failure)?;
    match ended_by {
        Some(signal) => Err(wait_interrupted(plan, locks, signal)),
        None => Ok(answer),
    }
}

/// Waits before the next request to the engine, but not longer than until `deadline`. A signal ends the wait with an
/// error.
fn pause(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
) -> Result<(), Failure> {
    let remaining =
        deadline.map_or(CONFIRM_PAUSE, |deadline| deadline.saturating_sub(now()).min(CONFIRM_PAUSE));
    match event_loop.wait(Some(remaining)).map_err(wait_failure)? {
        Some(signal) if interrupts_wait(signal) => Err(wait_interrupted(plan, locks, signal)),
        _ => Ok(()),
    }
}

/// Makes an attempt to acquire the lock; it gets the time for which it may wait. `None`: the engine refuses the request
/// for now, or the hold was lost already, and the caller tries again. Only a run that was granted the lock before
/// (`was_granted`) tries again after a refusal; for any other run a refusal is an error.
pub(crate) fn acquire<'a, T>(
    plan: &Run,
    locks: &Locks,
    awaited: &AwaitedName,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
    was_granted: bool,
    attempt: &dyn Fn(Option<Duration>) -> Attempt<'a, T>,
) -> Result<Option<T>, Failure> {
    let parent_group = ParentGroup { locks, group: OnceCell::new() };
    let begin = || attempt(deadline.map(|deadline| deadline.saturating_sub(now())));
    let mut result = wait_for_lock(plan, locks, awaited, event_loop, begin(), &parent_group)?;
    if let (Err(error), Wait::Not) = (&result, plan.wait)
        && error.is_taken()
        && let Some(parent_group) = parent_group.group()
        && sweep::kill_orphans(parent_group, plan.verbose > 0)
    {
        // With `--nonblock` the run ends the processes that killed runs have left behind, and then tries once more.
        if let Some(signal) = sweep(parent_group, false, event_loop, interrupts_wait).map_err(wait_failure)? {
            return Err(wait_interrupted(plan, locks, signal));
        }
        let no_group = ParentGroup { locks, group: OnceCell::new() };
        result = wait_for_lock(plan, locks, awaited, event_loop, begin(), &no_group)?;
    }
    match result {
        Err(error) if error.is_taken() => Err(not_acquired(plan, locks, event_loop, &error)?),
        Err(error) if error.is_refused() && was_granted => {
            pause(plan, locks, event_loop, deadline)?;
            if deadline.is_some_and(|deadline| now() >= deadline) { Err(error.into()) } else { Ok(None) }
        }
        // The hold was lost before CMD could start, for instance before a leader had published its value.
        Err(error) if error.is_lost() => Ok(None),
        result => result.map(Some).map_err(Into::into),
    }
}

/// The control group of this process. Groups below it may contain processes that inherited the lock's descriptor from a
/// killed run. The control group is looked up only when the name is not free.
struct ParentGroup<'a> {
    locks: &'a Locks,
    group: OnceCell<Option<Group>>,
}

impl ParentGroup<'_> {
    /// The control group of this process. `None`: the engine's holds do not end with the process, or the group cannot
    /// be determined.
    fn group(&self) -> Option<&Group> {
        let find =
            || (self.locks.profile().life == Life::Process).then(Group::of_this_process).and_then(Result::ok);
        self.group.get_or_init(find).as_ref()
    }
}

/// Waits for the end of the attempt. During the wait it ends processes below `parent_group` that keep the lock although
/// their run was killed. The inner result is the answer of the library. The outer result is a failure if a signal ended
/// the wait.
fn wait_for_lock<T>(
    plan: &Run,
    locks: &Locks,
    awaited: &AwaitedName,
    event_loop: &EventLoop,
    mut attempt: Attempt<'_, T>,
    parent_group: &ParentGroup<'_>,
) -> Result<Result<T, Error>, Failure> {
    let mut wait_messages = WaitMessages::new(plan, locks, awaited);
    let mut cycle_check = CycleCheck::new(plan, locks);
    let mut next_sweep = now().saturating_add(FIRST_SWEEP);
    loop {
        if let Poll::Ready(result) = event_loop.poll(attempt.as_mut()) {
            return Ok(result);
        }
        let mut next_wake_up = wait_messages.print_when_due(event_loop);
        // The return of the failure drops the future, which removes the claim from the queue.
        if let Some(next_check) = cycle_check.check_when_due(event_loop)? {
            next_wake_up = Some(next_wake_up.map_or(next_check, |next| next.min(next_check)));
        }
        if plan.wait != Wait::Not
            && let Some(parent_group) = parent_group.group()
        {
            if now() >= next_sweep {
                sweep::kill_orphans(parent_group, plan.verbose > 0);
                next_sweep = now().saturating_add(SWEEP_INTERVAL);
            }
            let remaining = next_sweep.saturating_sub(now());
            next_wake_up = Some(next_wake_up.map_or(remaining, |next| next.min(remaining)));
        }
        match event_loop.wait(next_wake_up).map_err(wait_failure)? {
            // The return drops the future, which removes the claim from the queue.
            Some(signal) if interrupts_wait(signal) => return Err(wait_interrupted(plan, locks, signal)),
            Some(Signal::SIGTSTP) => event_loop.signals().stop().map_err(wait_failure)?,
            _ => {}
        }
    }
}

/// An attempt of `run` or `elect`. `remaining`: how long it may still wait.
fn attempt(plan: &Run, locks: &Locks, remaining: Option<Duration>) -> Attempt<'static, Acquired> {
    if let Purpose::Elect { value } = &plan.purpose {
        let election = election(plan, locks, value.as_deref(), remaining);
        return match (plan.wait, remaining) {
            (Wait::Not, _) => Box::pin(async move { election.try_campaign().await.map(Acquired::Lead) }),
            (_, None) => Box::pin(async move { election.campaign().await.map(Acquired::Lead) }),
            (_, Some(remaining)) => {
                Box::pin(async move { election.campaign_within(remaining).await.map(Acquired::Lead) })
            }
        };
    }
    let request = request(plan, locks, remaining);
    let acquire = match (plan.wait, remaining) {
        (Wait::Not, _) => request.try_acquire(),
        (_, None) => request.acquire(),
        (_, Some(remaining)) => request.acquire_within(remaining),
    };
    Box::pin(async move { acquire.await.map(Acquired::Names) })
}

/// The election of `elect`, with its options.
fn election(plan: &Run, locks: &Locks, value: Option<&str>, remaining: Option<Duration>) -> Election {
    let election = locks.election(plan.name.as_str()).ttl(plan.ttl).stops_on_term(true);
    let election = value.into_iter().fold(election, Election::value);
    let election = plan.max_hold.into_iter().fold(election, Election::max_hold);
    let election = plan.renew_every.into_iter().fold(election, Election::renew_every);
    fitting_pace(plan, remaining).into_iter().fold(election, Election::retry)
}

/// The pace of the questions while the run waits. `None`: the engine decides, also near the end of the wait, when no
/// pause of the pace would end in time.
pub(crate) fn fitting_pace(plan: &Run, remaining: Option<Duration>) -> Option<Pace> {
    plan.pace.filter(|pace| remaining.is_none_or(|remaining| pace.first() <= remaining))
}

/// The request for the lock, with the options of the run. `remaining`: how long the run may still wait.
fn request(plan: &Run, locks: &Locks, remaining: Option<Duration>) -> All {
    let with = |all: All, (name, mode): (&str, WantedMode)| match mode {
        WantedMode::Exclusive => all.mutex(name),
        WantedMode::Shared => all.read(name),
        WantedMode::Permits { count, limit } => all.permits(name, count, limit),
    };
    let others = plan.others.iter().map(|(name, mode)| (name.as_str(), *mode));
    let request = std::iter::once((plan.name.as_str(), plan.mode)).chain(others).fold(locks.all(), with);
    let request = request.ttl(plan.ttl).renew(plan.renew).stops_on_term(true);
    let request = plan.max_hold.into_iter().fold(request, All::max_hold);
    let request = plan.renew_every.into_iter().fold(request, All::renew_every);
    let request = plan.attempts.into_iter().fold(request, All::attempts);
    fitting_pace(plan, remaining).into_iter().fold(request, All::retry)
}

/// The failure if the lock was not acquired. Its message names the holder, if the engine says in time who the holder
/// is.
fn not_acquired(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    error: &Error,
) -> Result<Failure, Failure> {
    if plan.quiet && plan.report.is_none() {
        return Ok(Failure::silent(plan.not_acquired_code));
    }
    let limit = if plan.wait == Wait::Not { SHOW_LIMIT } else { SHOW_LIMIT_AFTER_WAIT };
    let taken = error.name().unwrap_or(&plan.name).as_str();
    let error = error.to_string();
    let shown = event_loop.block_on(locks.show(taken), Some(limit), interrupts_wait);
    let holder_text = match shown.map_err(wait_failure)? {
        Some(Ok(view)) => text::held_by(&view).map(|held| held + warnings::same_owner(plan, &view)),
        _ => Some(format!("{HELD_BY_ANOTHER}: {}", how_to_see_the_holder(&plan.reached, taken))),
    };
    let holder_text = holder_text.unwrap_or_else(|| "it was held by another and is free now".to_owned());
    // The message names the holder in place of "another".
    let beginning = error.strip_suffix(HELD_BY_ANOTHER).unwrap_or(&error);
    let message = format!("{beginning}{holder_text}");
    Ok(Failure::new(plan.not_acquired_code, message).hidden(plan.quiet))
}

/// The command that shows the holder of a name.
fn how_to_see_the_holder(reached: &Reached, name: &str) -> String {
    let show = reached.quoted_command(&format!("show {}", text::shell_word(name)));
    format!("{show} shows the holder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_shows_the_holder_reaches_the_same_engine() {
        let reached = Reached::of_url("redis://:hunter2@h", "redis");
        assert_eq!(
            how_to_see_the_holder(&reached, "a b"),
            "with the password in the URL: `leasehold --url redis://h show 'a b'` shows the holder"
        );
        let here = how_to_see_the_holder(&Reached::AsHere, "a");
        assert_eq!(here, "`leasehold show a` shows the holder");
    }
}
