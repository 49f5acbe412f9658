//! `leasehold once`: runs CMD unless an earlier run for the same key has succeeded.

use std::{cell::RefCell, pin::Pin, task::Poll, time::Duration};

use leasehold::{ErrorKind, Guard, Once, OnceError, Ran};

use super::{
    print_bytes,
    run::{CmdEnd, NO_ANSWER, RELEASE_LIMIT, Runner, lock_label, lock_lost, reason, wait_failure},
};
use crate::{
    acquire::{Attempt, acquire, fitting_pace, is_confirmed},
    capture::{Kept, MAX_KEPT},
    exit::{self, Failure},
    holds::Holds,
    plan::Wait,
    signals::interrupts_wait,
    text::print_message,
};

/// The future of one call of the library, which waits, runs CMD and stores the result.
type Call<'a> = Pin<Box<dyn Future<Output = CallEnd> + 'a>>;
type CallEnd = Result<Ran, OnceError<()>>;

/// The end of CMD within a call. `None`: CMD was not started.
type EndOfCmd = RefCell<Option<Result<CmdEnd, Failure>>>;

/// How far a call is when the wait is over.
enum Progress<'a> {
    Done(CallEnd),
    /// CMD has ended, or could not be started, and the call releases the lock now.
    Releasing(Call<'a>),
}

/// Runs CMD, or does nothing if CMD ran already. Returns the exit code. `deadline`: until when to wait for another run.
pub(crate) fn once(
    runner: &Runner<'_>,
    deadline: Option<Duration>,
    keep: Duration,
    shows_result: bool,
) -> Result<u8, Failure> {
    let Runner { plan, locks, event_loop, awaited, .. } = *runner;
    let end_of_cmd = EndOfCmd::new(None);
    let attempt = |remaining| {
        let once = with_options(runner, keep, remaining);
        attempt(runner, &once, deadline, remaining, &end_of_cmd)
    };
    let mut was_granted = false;
    loop {
        let progress = acquire(plan, locks, awaited, event_loop, deadline, was_granted, &attempt)?;
        let Some(progress) = progress else { continue };
        was_granted = true;
        let call_end = match progress {
            Progress::Done(call_end) => Some(call_end),
            Progress::Releasing(call) => {
                if let Some(Ok(cmd_end)) = &*end_of_cmd.borrow()
                    && keeps_lock(cmd_end)
                {
                    // As with `flock`, the lock is free when the last process that CMD left behind has closed the
                    // descriptor.
                    std::mem::forget((call, locks.clone()));
                    return Ok(cmd_end.code);
                }
                event_loop.block_on(call, Some(RELEASE_LIMIT), interrupts_wait).map_err(wait_failure)?
            }
        };
        match (end_of_cmd.take(), call_end) {
            (Some(Err(failure)), _) => return Err(failure),
            (Some(Ok(cmd_end)), call_end) => return finish(runner, cmd_end, call_end),
            (None, Some(Ok(ran))) => return replay(runner, ran.bytes(), shows_result),
            // The hold was lost before CMD could start.
            (None, _) => {}
        }
    }
}

/// The library's `once` with the options of the command. `remaining`: how long it may still wait.
fn with_options(runner: &Runner<'_>, keep: Duration, remaining: Option<Duration>) -> Once {
    let plan = runner.plan;
    let once = runner.locks.once(plan.name.as_str()).keep(keep).ttl(plan.ttl).stops_on_term(true);
    let once = plan.max_hold.into_iter().fold(once, Once::max_hold);
    let once = plan.renew_every.into_iter().fold(once, Once::renew_every);
    fitting_pace(plan, remaining).into_iter().fold(once, Once::retry)
}

/// One call of the library. It ends when CMD has ended, so that no message about waiting is printed after that.
fn attempt<'a>(
    runner: &'a Runner<'a>,
    once: &Once,
    deadline: Option<Duration>,
    remaining: Option<Duration>,
    end_of_cmd: &'a EndOfCmd,
) -> Attempt<'a, Progress<'a>> {
    // CMD is supervised within one poll of this future, which blocks the thread. So the library does not drop the work
    // when the hold is lost: the supervision ends CMD.
    let work = async move |guard: &Guard| {
        let Some(end) = under(runner, guard, deadline).transpose() else { return Err(()) };
        let keeps_lock = end.as_ref().is_ok_and(keeps_lock);
        end_of_cmd.replace(Some(end));
        if keeps_lock {
            // This call must not release the lock.
            std::future::pending::<()>().await;
        }
        match &*end_of_cmd.borrow() {
            Some(Ok(CmdEnd { code: exit::DONE, output, .. })) => {
                Ok(output.as_ref().map(|kept| kept.bytes.clone()).unwrap_or_default())
            }
            _ => Err(()),
        }
    };
    let call: Call<'a> = match (runner.plan.wait, remaining) {
        (Wait::Not, _) => Box::pin(once.try_run(work)),
        (_, None) => Box::pin(once.run(work)),
        (_, Some(remaining)) => Box::pin(once.run_within(remaining, work)),
    };
    let mut call = Some(call);
    Box::pin(std::future::poll_fn(move |cx| {
        let Some(polled) = call.as_mut().map(|call| call.as_mut().poll(cx)) else { return Poll::Pending };
        let has_ended = end_of_cmd.borrow().is_some();
        match polled {
            Poll::Ready(Err(OnceError::NotBegun(error) | OnceError::Cancelled(error))) if !has_ended => {
                Poll::Ready(Err(error))
            }
            Poll::Ready(call_end) => Poll::Ready(Ok(Progress::Done(call_end))),
            Poll::Pending if has_ended => {
                call.take().map_or(Poll::Pending, |call| Poll::Ready(Ok(Progress::Releasing(call))))
            }
            Poll::Pending => Poll::Pending,
        }
    }))
}

/// Whether processes that CMD left behind keep the lock: those of a CMD that failed. After a success CMD does not run
/// again, so the lock is not needed any more.
const fn keeps_lock(cmd_end: &CmdEnd) -> bool {
    cmd_end.inherited && cmd_end.code != exit::DONE
}

/// Runs CMD under the hold. `None`: the hold was lost before CMD could start.
fn under(runner: &Runner<'_>, guard: &Guard, deadline: Option<Duration>) -> Result<Option<CmdEnd>, Failure> {
    let Runner { plan, locks, event_loop, .. } = *runner;
    let holds = Holds::One(guard);
    match is_confirmed(plan, locks, event_loop, holds, deadline)? {
        true => runner.run(holds).map(Some),
        false => Ok(None),
    }
}

/// The exit code after CMD has ended and the lock was released. `None`: the engine did not answer in time.
fn finish(runner: &Runner<'_>, cmd_end: CmdEnd, call_end: Option<CallEnd>) -> Result<u8, Failure> {
    let Runner { plan, locks, .. } = *runner;
    let (lock, code) = (lock_label(plan, locks), cmd_end.code);
    let why = match call_end {
        Some(Ok(_)) => {
            if let Some(Kept { bytes, is_cut: true }) = &cmd_end.output {
                let len = bytes.len();
                print_message(&format!("{lock}: only the first {len} bytes of the output are stored"));
            }
            runner.steps.ended(locks);
            return Ok(code);
        }
        Some(Err(OnceError::NotStored { error, .. })) => match error.kind() {
            ErrorKind::Lost(loss) => return Err(lock_lost(plan, locks, &plan.name, loss, None, code)),
            _ => reason(plan, locks, &error),
        },
        // CMD failed, and nothing was to be stored.
        Some(Err(_)) => {
            runner.steps.ended(locks);
            return Ok(code);
        }
        None => NO_ANSWER.to_owned(),
    };
    if code != exit::DONE {
        let message =
            format!("{lock}: not released ({why}): it is free when its lease has run out, at the latest");
        return Err(Failure::new(code, message));
    }
    let message = format!(
        "{lock}: CMD ended with 0, but it is not known that this is stored ({why}): the next call may run CMD again"
    );
    Err(Failure::new(exit::UNAVAILABLE, message))
}

/// The exit code if CMD ran already. Prints the result, if it is wanted.
fn replay(runner: &Runner<'_>, result: &[u8], shows_result: bool) -> Result<u8, Failure> {
    runner.steps.replayed(runner.locks);
    if !shows_result {
        return Ok(exit::DONE);
    }
    if result.len() == MAX_KEPT {
        let lock = lock_label(runner.plan, runner.locks);
        print_message(&format!(
            "{lock}: the stored output has 64 KiB, the most that is stored: its end may be missing"
        ));
    }
    print_bytes(result)
}
