//! A program in a case: a `Locks` on a client of the case, for what core builds on the verbs.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Breaking, Keeper, Locks, Name, Profile};

use super::{
    case::{Outcome, Stop},
    fixture::Fixture,
};

/// For how long a `Locks` may take to release what is left at the end of a case.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// How many times the patience of a notification a case of a program may wait for one step: a step has some requests,
/// and may also be found out by reading at intervals.
const STEPS: u32 = 3;

/// The reason to skip a case that needs memos; `None` if the engine has them.
pub(super) fn needs_memos(profile: &Profile) -> Option<&'static str> {
    profile.no_memos
}

/// The reason to skip a case that needs memos, and holds that an operator can break.
pub(super) fn needs_memos_and_breaking(profile: &Profile) -> Option<&'static str> {
    let breaks = matches!(profile.breaking, Breaking::Lease | Breaking::Force);
    needs_memos(profile).or((!breaks).then_some("holds cannot be broken on the server"))
}

impl<'a> Fixture<'a> {
    /// A program of its own. At the end of the case the memo of `name` ends soon.
    pub(super) async fn program(&'a self, name: &Name) -> Locks {
        if self.profile().no_memos.is_none() {
            self.memo_names.borrow_mut().insert(name.clone());
        }
        let engine = Arc::clone(&self.client().await.engine);
        Locks::builder(engine).keeper(Keeper::on(tokio::runtime::Handle::current())).build()
    }

    /// Waits for a step of a program. It fails the case if it takes too long.
    pub(super) async fn step<T>(&self, what: &str, step: impl Future<Output = T>) -> Outcome<T> {
        let limit = self.patience() * STEPS;
        let late = |_| Stop::Fail(format!("{what}: not within {limit:?}"));
        tokio::time::timeout(limit, step).await.map_err(late)
    }
}

/// Ends the programs of a case, and fails it if one of them still holds something.
pub(super) async fn close_all<const N: usize>(programs: [Locks; N]) -> Outcome {
    for program in programs {
        let left = program.close(CLOSE_LIMIT).await;
        if left > 0 {
            return Err(Stop::Fail(format!("{left} holds were left at the end of a program")));
        }
    }
    Ok(())
}

/// Fails the case with an error of a program.
pub(super) fn failed(what: &str) -> impl Fn(leasehold_core::Error) -> Stop + '_ {
    move |error| Stop::Fail(format!("{what}: {error:?}"))
}
