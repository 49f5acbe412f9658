//! Engines around engines: what every engine may meet, made to happen when a test wants it.
//!
//! Each wraps any [`Engine`](leasehold_core::Engine), is one itself, and forwards every verb. None sleeps: what is held
//! back goes on when the test says so, or after a number of calls. Because a call may wait in them, the profiles of
//! [`Faulty`] and [`Slow`] are never `inline`.

mod counting;
mod faulty;
mod slow;
mod verb;

pub use counting::{Count, Counting};
pub use faulty::{Fault, Faulty, Rates};
pub use slow::Slow;
pub use verb::Verb;

/// The profile of an engine around `inner` whose calls may wait.
fn waiting_profile(inner: &dyn leasehold_core::Engine) -> leasehold_core::Profile {
    let mut profile = inner.profile().clone();
    profile.inline = false;
    profile
}
