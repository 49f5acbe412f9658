//! Decorators: engines around an engine, which inject faults and delays when a test asks for them.
//!
//! Each decorator wraps any [`Engine`](leasehold_core::Engine), is an engine itself, and forwards every verb. None of
//! them sleeps: a call that a decorator holds continues when the test says so, or after a number of further calls.
//! Because a call may wait, the profiles of [`Faulty`] and [`Slow`] never set `inline` (verbs wait for nothing outside
//! the process).

mod counting;
mod faulty;
mod slow;
mod verb;

pub use counting::{Count, Counting};
pub use faulty::{Fault, Faulty, Rates};
pub use slow::Slow;
pub use verb::Verb;

/// The memos of an engine in a decorator, which has memos only if the engine has them.
fn memos_of(inner: &dyn leasehold_core::Engine) -> &dyn leasehold_core::Memos {
    inner.memos().expect("the decorator has memos because its engine has them")
}

/// The conversions of an engine in a decorator, which has conversions only if the engine has them.
fn conversions_of(inner: &dyn leasehold_core::Engine) -> &dyn leasehold_core::Conversions {
    inner.conversions().expect("the decorator has conversions because its engine has them")
}

/// The profile of a decorator whose calls may wait.
fn waiting_profile(inner: &dyn leasehold_core::Engine) -> leasehold_core::Profile {
    let mut profile = inner.profile().clone();
    profile.inline = false;
    profile
}
