//! The keeper: the one background worker of a `Locks`. This folder, `link.rs` and `runtime.rs` are the only places
//! in core that may read a real clock, sleep, spawn tasks and threads, or draw random numbers.
//!
//! The keeper owns every request that waits for a server, every renewal and every release. User code queues a job and
//! awaits a plain channel. So a blocked or dropped user runtime stops nothing, and dropping a guard or a future only
//! sends one message.

mod attempt;
mod batches;
mod block;
mod clean;
mod close;
mod convert;
mod drive;
pub(crate) mod env;
mod exit;
mod loss_callbacks;
mod memo;
mod min_hold;
mod notifications;
mod on_caller;
mod one_step;
mod renew;
mod run_here;
mod serve;
mod set;
mod set_events;
mod thread;
mod timers;

pub(crate) use attempt::{TriesOutcome, try_without_queue};
pub(crate) use clean::{Cleanup, run_cleanups};
pub(crate) use close::close;
pub(crate) use convert::{Converter, GuardSlot};
pub(crate) use drive::{REPORT_MARGIN, drive};
pub(crate) use env::system_instant_in;
#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) use env::time_of_day;
pub use env::{Entropy, Env};
pub(crate) use exit::{Pending, register, wait_at_exit};
pub(crate) use loss_callbacks::LossCallbacks;
pub(crate) use memo::{MemoOutcome, MemoSender};
pub(crate) use min_hold::hold_until;
pub use on_caller::is_on_calling_thread;
pub use run_here::BlockingCall;
pub(crate) use serve::{KeeperJob, serve};
pub(crate) use set::{NameSet, acquire_set};
pub(crate) use set_events::SetEvents;
pub use thread::{Keeper, Runtime};
pub(crate) use timers::{KeeperWake, TimerAction, TimerKey, Timers};

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::{Answer, BoxFuture, EngineError, Fault, Released};

/// Polls a future once, without waiting: the value of a future that is done at its first poll, as the futures of an
/// engine inside the process are; `None` if the future is not done.
pub(crate) fn poll_once<T>(future: Pin<&mut (dyn Future<Output = T> + Send)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The answer of an engine that promised to answer at once. An error with an unknown outcome if it does not.
pub(crate) fn answer_at_once(
    mut answer: BoxFuture<'_, Result<Answer, EngineError>>,
) -> Result<Answer, EngineError> {
    // The claim may have been applied: dropping its future makes the outcome unknown, and the keeper asks again.
    let late_answer_error =
        || Err(EngineError::new(Fault::Unknown, "the engine did not answer at once, as its profile says"));
    poll_once(answer.as_mut()).unwrap_or_else(late_answer_error)
}

/// The first answer of a batch of one, from an engine that promised to answer at once. `None` if it does not.
pub(crate) fn released_at_once(mut answers: BoxFuture<'_, Vec<Released>>) -> Option<Released> {
    poll_once(answers.as_mut()).and_then(|answers| answers.into_iter().next())
}
