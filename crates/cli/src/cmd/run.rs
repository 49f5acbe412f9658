//! `leasehold run` and `elect`: acquire, run CMD, release. `once` uses the parts of this file.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use leasehold::{Connect, Error, ErrorKind, Guard, Keeper, Life, Locks, Loss, Name, Owner, WhenUnreachable};
use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    acquire::{acquire_confirmed, wait_deadline},
    args,
    capture::{Capture, Kept},
    cmd::once,
    engines,
    event_loop::EventLoop,
    exit::{self, Failure},
    front::{FrontLink, Outcome, Role, split_into_front_and_guardian},
    holds::{Acquired, Holds},
    log,
    nested::{Hold, nested},
    on_lost,
    plan::{Purpose, Run},
    progress::{AwaitedName, RenewalTrouble, Steps},
    signals::{Signals, interrupts_wait},
    spawn::become_cmd,
    start::{lock_is_inherited, start, start_failure},
    supervise::{End, Supervisor},
    warnings,
};

/// How long a run waits at its end for the engine's answer to the release. Without an answer, the lock is free when its
/// lease has ended, at the latest.
pub(crate) const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// The shortest ttl for which the keeper's thread starts only some time after CMD. With a shorter ttl the keeper would
/// have to check the lock file before that time.
const MIN_TTL_TO_DEFER_KEEPER: Duration = Duration::from_secs(2);
/// How long a run waits at its end until the engine has confirmed that the run still holds the lock. Only an engine
/// whose holds end with the process is asked. The limit is short, because such an engine answers without a server.
const CONFIRM_LIMIT: Duration = Duration::from_secs(1);

/// The reason in a message about a release to which no answer came.
pub(crate) const NO_ANSWER: &str = "no answer";

/// Runs CMD under the lock. Returns the exit code.
pub(crate) fn run(plan: Run) -> Result<u8, Failure> {
    plan.begin_metrics()?;
    // Signals are blocked before the engine starts its threads, because threads inherit the mask.
    let signals = Signals::take().map_err(|error| Failure::system("cannot read signals", error))?;
    let initial_mask = signals.initial_mask();
    let cannot_start = |error| Failure::system("cannot start the guardian", error);
    let hook = plan.on_lost.is_some().then(on_lost::pair).transpose().map_err(cannot_start)?;
    match split_into_front_and_guardian(signals, hook).map_err(cannot_start)? {
        Role::Guardian(front_link, event_loop) => {
            let result = run_as_guardian(&plan, &front_link, &event_loop);
            if let Err(Failure { loss: Some(loss), lost_name: Some(name), .. }) = &result {
                // The loss was found when CMD had ended already, by the release.
                front_link.report_loss(name, *loss);
            }
            plan.reported(result)
        }
        Role::Front(mut front) => match front.wait_for_end(&plan) {
            Err(failure) => plan.reported(Err(failure)),
            Ok(Outcome::Code(code)) => Ok(code),
            Ok(Outcome::BecomeCmd(claim)) => {
                let hold = Hold::of_outer_runs().into_iter().find(|hold| hold.claim == claim);
                let variables = hold.map(Hold::variables).unwrap_or_default();
                let error =
                    become_cmd(&plan.program, &plan.arguments, variables, plan.pass_url, initial_mask);
                Err(start_failure(&plan, error))
            }
        },
    }
}

/// The guardian's part of the run: acquires the lock, runs CMD, releases the lock.
fn run_as_guardian(plan: &Run, front_link: &FrontLink, event_loop: &EventLoop) -> Result<u8, Failure> {
    log::start(plan.verbose);
    let owner = plan.owner.clone().unwrap_or_else(|| front_link.owner());
    let mut connect = Connect::default().owner(Owner::of_task(owner.label(), plan.actor).label());
    if let Some(what) = plan.when_unreachable {
        connect = connect.when_unreachable(match what {
            args::WhenUnreachable::Wait => WhenUnreachable::Wait,
            args::WhenUnreachable::Fail => WhenUnreachable::Fail,
        });
    }
    // The keeper of the connection; its thread starts later, if CMD still runs then.
    let keeper = deferred_keeper(plan);
    if let Some(keeper) = &keeper {
        connect = connect.keeper(keeper.clone());
    }
    connect = connect.observe(RenewalTrouble::of(plan));
    let awaited = Arc::new(AwaitedName::default());
    connect = connect.observe(Arc::clone(&awaited) as _);
    let locks = connect.connect(&plan.url)?;
    let steps = Steps::begin(plan);
    let runner = Runner { plan, locks: &locks, event_loop, awaited: &awaited, front_link, steps, keeper };
    let deadline = wait_deadline(plan);
    if let Some(hold) = nested(plan, &locks, event_loop, deadline)? {
        front_link
            .send_become_cmd(&hold.claim)
            .map_err(|error| Failure::system("cannot start CMD", error))?;
        return Ok(exit::DONE);
    }
    warnings::print(plan, &locks);
    if let Purpose::Once { keep, shows_result } = plan.purpose {
        return once::once(&runner, deadline, keep, shows_result);
    }
    let guard = acquire_confirmed(plan, &locks, &awaited, event_loop, deadline)?;
    let CmdEnd { code, inherited, .. } = runner.run(guard.holds())?;
    let code = release(plan, &locks, guard, event_loop, code, inherited)?;
    if !inherited {
        runner.steps.ended(&locks);
    }
    Ok(code)
}

/// What is needed to run CMD under a hold.
pub(crate) struct Runner<'a> {
    pub(crate) plan: &'a Run,
    pub(crate) locks: &'a Locks,
    pub(crate) event_loop: &'a EventLoop,
    /// The name for which it waits.
    pub(crate) awaited: &'a AwaitedName,
    front_link: &'a FrontLink,
    pub(crate) steps: Steps<'a>,
    /// The deferred keeper.
    keeper: Option<Keeper>,
}

/// The end of a CMD during which no loss of the hold was reported.
pub(crate) struct CmdEnd {
    pub(crate) code: u8,
    /// Whether processes that CMD left behind have the descriptor of the lock, and keep the lock.
    pub(crate) inherited: bool,
    /// What CMD printed, if that is the result.
    pub(crate) output: Option<Kept>,
}

impl Runner<'_> {
    /// Runs CMD under these holds. Fails if CMD cannot be started, or if the lock is lost.
    pub(crate) fn run(&self, holds: Holds<'_>) -> Result<CmdEnd, Failure> {
        let Self { plan, locks, event_loop, front_link, .. } = *self;
        let start_failed = |error| Failure::system("cannot start CMD", error);
        front_link.send_holds(&holds.claims()).map_err(start_failed)?;
        front_link.set_tokens(holds);
        self.steps.granted(locks, holds);
        let is_kept = matches!(plan.purpose, Purpose::Once { shows_result: true, .. });
        let capture = is_kept.then(Capture::start).transpose().map_err(start_failed)?;
        let (capture, stdout) = capture.unzip();
        let child = start(plan, locks, holds, event_loop, front_link, stdout)?;
        self.steps.started(locks, &child, front_link.pid());
        let end = Supervisor::new(plan, lock_label(plan, locks), holds, event_loop, child)
            .with_deferred_keeper(self.keeper.clone())
            .with_loss_report(front_link)
            .wait_for_end()
            .map_err(wait_failure)?;
        let has_failed = !matches!(end, End::Held { code: exit::DONE, .. });
        let output = capture.map(|capture| capture.finish(event_loop, has_failed));
        let output = output.transpose().map_err(wait_failure)?;
        let (code, left_processes) = match end {
            End::Held { code, left_processes } => (code, left_processes),
            End::Lost { name, loss, code } => {
                let trouble = holds.iter().find(|guard| *guard.name() == name).and_then(Guard::trouble);
                return Err(lock_lost(plan, locks, &name, loss, trouble, code));
            }
        };
        let inherited = left_processes && lock_is_inherited(plan, locks, holds);
        if locks.profile().life == Life::Process {
            // A hold that ends with the process is checked only at intervals, so it is confirmed now. For other holds,
            // the answer to the release reports a loss.
            let confirmed = event_loop.block_on(holds.confirm(), Some(CONFIRM_LIMIT), interrupts_wait);
            if let Some(Err(error)) = confirmed.map_err(wait_failure)?
                && let ErrorKind::Lost(loss) = error.kind()
            {
                return Err(lock_lost(plan, locks, error.name().unwrap_or(&plan.name), loss, None, code));
            }
            // I10: a hold without an answer in time does not hide that another one is lost.
            if let Poll::Ready((name, loss)) = event_loop.poll(pin!(holds.lost())) {
                return Err(lock_lost(plan, locks, &name, loss, None, code));
            }
        }
        Ok(CmdEnd { code, inherited, output })
    }
}

/// A keeper whose thread is not started at once, for `run` on the file engine. `None` for other engines and commands,
/// with `--max-hold`, and with a short ttl. Otherwise a hold of the file engine needs no keeper in its first moments.
/// Many a CMD ends within these moments, and no thread is started for it.
fn deferred_keeper(plan: &Run) -> Option<Keeper> {
    let is_soon_due = plan.max_hold.is_some() || plan.ttl < MIN_TTL_TO_DEFER_KEEPER;
    let can_wait = plan.purpose == Purpose::Run && !is_soon_due;
    (engines::name_of(&plan.url) == "file" && can_wait).then(Keeper::deferred)
}

/// Releases the lock after CMD has ended and no loss was reported. `inherited`: processes that CMD left behind have the
/// descriptor of the lock, and keep the lock.
fn release(
    plan: &Run,
    locks: &Locks,
    guard: Acquired,
    event_loop: &EventLoop,
    code: u8,
    inherited: bool,
) -> Result<u8, Failure> {
    if inherited {
        // As with `flock`, the lock is free when the last process that CMD left behind has closed the descriptor.
        std::mem::forget((guard, locks.clone()));
        return Ok(code);
    }
    let troubles = guard.holds().troubles();
    let released = match plan.at_least {
        Some(at_least) if code == exit::DONE && !locks.profile().supports_min_hold => {
            match hold_for_at_least(locks, guard, at_least, event_loop).map_err(wait_failure)? {
                MinHold::Interrupted(signal) => return Err(min_hold_interrupted(plan, locks, signal, code)),
                MinHold::Released(released) => Ok(released),
            }
        }
        Some(at_least) if code == exit::DONE => {
            event_loop.block_on(guard.release_at_least(at_least), Some(RELEASE_LIMIT), interrupts_wait)
        }
        _ => event_loop.block_on(guard.release(), Some(RELEASE_LIMIT), interrupts_wait),
    };
    let why = match released.map_err(wait_failure)? {
        Some(Ok(())) => return Ok(code),
        Some(Err(error)) => match error.kind() {
            ErrorKind::Lost(loss) => {
                let name = error.name().unwrap_or(&plan.name);
                let trouble = troubles.into_iter().find(|(troubled, _)| troubled == name);
                return Err(lock_lost(plan, locks, name, loss, trouble.map(|(_, trouble)| trouble), code));
            }
            _ => reason(plan, locks, &error),
        },
        None => NO_ANSWER.to_owned(),
    };
    // CMD ran to its end under the lock. But if the name is not held for `--at-least`, the option was not fulfilled,
    // which is a failure.
    let (code, what) = match plan.at_least {
        Some(_) if code == exit::DONE => (exit::UNAVAILABLE, "not held for --at-least"),
        _ => (code, "not released"),
    };
    let lock = lock_label(plan, locks);
    let message = format!("{lock}: {what} ({why}): it is free when its lease has run out, at the latest");
    Err(Failure::new(code, message))
}

/// The text of an error for a message that begins with the lock, so that the text need not.
pub(crate) fn reason(plan: &Run, locks: &Locks, error: &Error) -> String {
    error.to_string().replacen(&format!("{}: ", lock_label(plan, locks)), "", 1)
}

/// The result of holding the name in this process until `--at-least` has passed.
enum MinHold {
    /// The result of the release, after `--at-least` had passed. `None`: no answer came in time.
    Released(Option<Result<(), Error>>),
    /// This signal came before `--at-least` had passed.
    Interrupted(Signal),
}

/// Holds the name in this process until `at_least` has passed after the grant. This is for engines whose holds end when
/// the process that holds the name ends.
fn hold_for_at_least(
    locks: &Locks,
    guard: Acquired,
    at_least: Duration,
    event_loop: &EventLoop,
) -> Result<MinHold, Errno> {
    let mut release_later = pin!(guard.release_at_least(at_least));
    let mut ended_by = None;
    let stop = |signal| interrupts_wait(signal) && ended_by.replace(signal).is_none();
    let released = event_loop.block_on(release_later.as_mut(), Some(at_least + RELEASE_LIMIT), stop)?;
    let Some(signal) = ended_by else { return Ok(MinHold::Released(released)) };
    event_loop.block_on(locks.close(Duration::ZERO), Some(RELEASE_LIMIT), |_| false)?;
    // `close` sends the pending release at once; this line waits for the answer.
    event_loop.block_on(release_later, Some(RELEASE_LIMIT), |_| false)?;
    Ok(MinHold::Interrupted(signal))
}

/// The failure if a signal ended the minimum hold early.
fn min_hold_interrupted(plan: &Run, locks: &Locks, signal: Signal, code: u8) -> Failure {
    let (lock, signal) = (lock_label(plan, locks), signal.as_str());
    Failure::new(code, format!("{lock}: not held for --at-least: {signal} ended it early"))
}

/// The failure if a signal ended a wait.
pub(crate) fn wait_interrupted(plan: &Run, locks: &Locks, signal: Signal) -> Failure {
    let (code, lock) = (exit::code_of_signal(signal), lock_label(plan, locks));
    let message = format!("{lock}: not acquired: {} ended the wait", signal.as_str());
    Failure::new(code, message).hidden(plan.quiet)
}

/// The failure if the hold of `name` was lost while CMD ran. Its message includes the error of the last renewal, if the
/// lease lapsed.
pub(crate) fn lock_lost(
    plan: &Run,
    locks: &Locks,
    name: &Name,
    loss: Loss,
    renewal_error: Option<String>,
    code: u8,
) -> Failure {
    let (lock, program) = (label_of(name, locks), plan.program.display());
    let why = match (loss, renewal_error) {
        (Loss::Lapsed, _) if !plan.renew => {
            "its lease ended and is not renewed because of --no-renew".to_owned()
        }
        (Loss::MaxHold, _) => "--max-hold ended".to_owned(),
        (Loss::Lapsed, Some(error)) => format!("{loss}; the last one failed: {error}"),
        (loss, _) => loss.to_string(),
    };
    Failure::new(
        exit::LOST,
        format!("{lock}: lost while {program} ran, which ended with {code}: {why}: check for half-done work"),
    )
    .because_of(loss, name)
}

/// The engine and the names, for messages.
pub(crate) fn lock_label(plan: &Run, locks: &Locks) -> String {
    plan.label(locks.profile().engine)
}

/// The engine and one of the names, for messages about this name alone.
pub(crate) fn label_of(name: &Name, locks: &Locks) -> String {
    format!("{} lock {:?}", locks.profile().engine, name.as_str())
}

/// The failure if the event loop gets an error from the operating system.
pub(crate) fn wait_failure(error: Errno) -> Failure {
    Failure::new(exit::BUG, format!("cannot wait for events: {error}"))
}
