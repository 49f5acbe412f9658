//! A run within a run: the name may be held by the very process that started this one.

use std::time::Duration;

use leasehold::{Locks, Mode};

use crate::{
    args::Nested,
    cmd::run::{lock, waiting_failed},
    exit::{self, Failure},
    plan::{Run, Wait, Want},
    signals::ends_wait,
    waiter::Waiter,
};

/// How long the look may take whether this process was started under the hold that it asks for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// What CMD is told of the hold.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
pub(crate) const CLAIM: &str = "LEASEHOLD_CLAIM";

/// Whether the process holds the name by which this one was started, in a way that leaves no room, and CMD is to run under that hold.
pub(crate) fn nested(plan: &Run, locks: &Locks, waiter: &Waiter) -> Result<bool, Failure> {
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
