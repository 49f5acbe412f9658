//! One case of the suite.

use std::{future::Future, pin::Pin};

use leasehold_core::Profile;

use super::fixture::Fixture;

/// A named case.
pub(super) struct Case {
    /// The name of the function of the case.
    pub(super) name: &'static str,
    /// The reason why the case does not apply to an engine with this profile; `None` if it applies.
    pub(super) skip: fn(&Profile) -> Option<&'static str>,
    /// Runs the case.
    pub(super) run: for<'a> fn(&'a Fixture<'a>) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>,
}

/// How a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The engine broke a rule.
    Fail(String),
    /// The case does not apply. The reason was found while the case ran.
    Skip(String),
}

/// `Ok`: the case passed.
pub(super) type Outcome<T = ()> = Result<T, Stop>;

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

/// A [`Case`] of a function. `skip` is a function from the profile to the reason why the case does not apply.
macro_rules! case {
    ($run:ident) => {
        case!($run, skip = |_| None)
    };
    ($run:ident, skip = $skip:expr) => {
        $crate::suite::case::Case {
            name: stringify!($run),
            skip: $skip,
            run: |fixture| Box::pin($run(fixture)),
        }
    };
}

/// Fails the case with a message unless the condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        let holds: bool = $cond;
        if !holds {
            return Err($crate::suite::case::Stop::Fail(format!($($message)+)));
        }
    };
}

/// Returns the value of the arm if the value matches the pattern. Otherwise fails the case with the actual value.
macro_rules! expect_match {
    ($value:expr, $pattern:pat $(if $guard:expr)? => $out:expr, $($message:tt)+) => {
        match $value {
            $pattern $(if $guard)? => $out,
            other => return Err($crate::suite::case::Stop::Fail(format!("{}: {other:?}", format_args!($($message)+)))),
        }
    };
}

pub(super) use {case, ensure, expect_match};

/// The reason to skip a case that needs shared holds or permits; `None` if the engine has them.
pub(super) fn needs_modes(profile: &Profile) -> Option<&'static str> {
    (profile.modes != leasehold_core::Modes::All).then_some("names can be claimed exclusively alone")
}

/// The reason to skip a case that needs names, owners and modes of claims on the server.
pub(super) fn needs_stored_claims(profile: &Profile) -> Option<&'static str> {
    (!profile.stores_claims).then_some("the server stores only locks, and nothing of their claims")
}

/// The reason to skip a case that needs holds that lapse.
pub(super) fn needs_lease(profile: &Profile) -> Option<&'static str> {
    (profile.life != leasehold_core::Life::Lease).then_some("a hold is not a lease of its own")
}

/// The reason to skip a case that needs a queue in first come, first served order.
pub(super) fn needs_fifo(profile: &Profile) -> Option<&'static str> {
    (!profile.fifo).then_some("claims are not granted in order")
}
