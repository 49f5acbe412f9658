//! Ends a hold for a person, with a record before and after.

use std::{net::SocketAddr, sync::Arc};

use leasehold::{Broken, View};
use leasehold_ops::{
    audit::{Audit, BreakRecord, Fields},
    end_hold, free_when,
};
use tokio::{
    runtime::Handle,
    task::{JoinError, spawn_blocking},
};

use crate::{guard::Identity, secret::random, state::Shared, time::now};

/// What a person asks for.
pub(crate) struct Wish {
    pub(crate) identity: Identity,
    pub(crate) address: SocketAddr,
    /// The number of the engine.
    pub(crate) engine: usize,
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) force: bool,
    pub(crate) reason: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Broken,
    /// The hold is broken, and its name stays taken for now: until when.
    Asked(String),
    /// Nothing was held under this token.
    NotHeld,
    /// The engine refused or did not answer. The hold may go on, or may have ended.
    Failed(String),
    /// Nothing was done, because it could not be recorded.
    NotRecorded(String),
    /// It was done, but its outcome could not be recorded.
    DoneUnrecorded(Box<Self>, String),
}

impl Outcome {
    /// The outcome in a sentence, for the page.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Broken => "The hold has ended.".to_owned(),
            Self::Asked(until) => format!("The hold is broken: {until}."),
            Self::NotHeld => "Nothing is held under this token. Nothing was done.".to_owned(),
            Self::Failed(why) => format!("The hold was not ended, or that is not known: {why}"),
            Self::NotRecorded(why) => format!("Nothing was done, because it cannot be recorded: {why}"),
            Self::DoneUnrecorded(outcome, why) => {
                format!("{} The audit file lacks this outcome: {why}", outcome.text())
            }
        }
    }

    /// The outcome, once a look after it shows whether the broken hold still blocks its name.
    fn after(self, view: &View, token: u64) -> Self {
        let blocking = BreakRecord::holder(view, token).filter(|holder| holder.broken);
        match (self, blocking) {
            (Self::Broken, Some(holder)) => Self::Asked(free_when(holder)),
            (outcome, _) => outcome,
        }
    }

    /// The word in the audit.
    const fn word(&self) -> &'static str {
        match self {
            Self::Broken | Self::Asked(_) => "broken",
            Self::NotHeld => "not held",
            Self::Failed(_) => "failed",
            Self::NotRecorded(_) => "not recorded",
            Self::DoneUnrecorded(outcome, _) => outcome.word(),
        }
    }
}

/// Ends the hold, in a task of its own: the record of the outcome does not depend on the connection of the person.
///
/// # Cancel safety
/// A dropped call is carried out all the same.
pub(crate) async fn break_hold(shared: Arc<Shared>, audit: Audit, wish: Wish) -> Outcome {
    let Ok(permit) = Arc::clone(&shared.breaks).acquire_owned().await else {
        return Outcome::NotRecorded("the server stops".to_owned());
    };
    let task = tokio::spawn(async move {
        let _permit = permit;
        recorded(&shared, audit, wish).await
    });
    task.await.unwrap_or_else(|error| Outcome::Failed(error.to_string()))
}

/// Ends the hold, with a record before and after.
async fn recorded(shared: &Shared, audit: Audit, wish: Wish) -> Outcome {
    let before = match show(shared, &wish).await {
        Ok(view) => view,
        Err(error) => return Outcome::Failed(error),
    };
    // Only of a hold that is there: a token that was guessed or is long gone is no break.
    if BreakRecord::holder(&before, wish.token).is_none() {
        return Outcome::NotHeld;
    }
    let id = match random() {
        Ok(id) => id[..16].to_owned(),
        Err(error) => return Outcome::NotRecorded(error.to_string()),
    };
    let record = record(shared, &wish, id);
    if let Err(why) = write(&audit, record.intent(now(), &before)).await {
        return Outcome::NotRecorded(why);
    }
    shared.history().expect_break(wish.engine, &wish.name, wish.token);
    let outcome = end(shared, &wish).await;
    if outcome == Outcome::Broken {
        shared.engines[wish.engine].totals().count_break();
    }
    let after = show(shared, &wish).await;
    let outcome = match &after {
        Ok(view) => outcome.after(view, wish.token),
        Err(_) => outcome,
    };
    let why = match &outcome {
        Outcome::Failed(why) => Some(why.as_str()),
        _ => None,
    };
    let line = record.outcome(now(), (outcome.word(), why), after.as_ref().map_err(String::as_str));
    match write(&audit, line).await {
        Ok(()) => outcome,
        Err(why) => Outcome::DoneUnrecorded(Box::new(outcome), why),
    }
}

/// Asks the engine to end the hold, and waits for a holder that it has to ask.
async fn end(shared: &Shared, wish: &Wish) -> Outcome {
    let locks = shared.engines[wish.engine].breaker().clone();
    let (name, token, force) = (wish.name.clone(), wish.token, wish.force);
    match spawn_blocking(move || end_hold(&locks, &name, token, force)).await.map_err(panicked) {
        Ok(Ok(Broken::Done)) => Outcome::Broken,
        Ok(Ok(Broken::NotHeld)) => Outcome::NotHeld,
        Ok(Ok(other)) => Outcome::Failed(format!("unexpected result {other:?}")),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(error) => Outcome::Failed(error),
    }
}

async fn show(shared: &Shared, wish: &Wish) -> Result<View, String> {
    // By the locks that end the hold: they must see the same hold.
    let (locks, name) = (shared.engines[wish.engine].breaker().clone(), wish.name.clone());
    let handle = Handle::current();
    let answer = spawn_blocking(move || handle.block_on(locks.show(&name))).await.map_err(panicked)?;
    answer.map_err(|error| error.to_string())
}

fn panicked(error: JoinError) -> String {
    error.to_string()
}

async fn write(audit: &Audit, fields: Fields) -> Result<(), String> {
    let audit = audit.clone();
    let written = spawn_blocking(move || audit.write(fields)).await.map_err(panicked)?;
    written.map_err(|error| error.to_string())
}

/// What every line tells.
fn record(shared: &Shared, wish: &Wish, id: String) -> BreakRecord {
    BreakRecord {
        id,
        who: wish.identity.who.clone(),
        known_by: wish.identity.how.word(),
        address: Some(wish.address.to_string()),
        engine: shared.engines[wish.engine].label.clone(),
        name: wish.name.clone(),
        token: wish.token,
        force: wish.force,
        reason: wish.reason.clone(),
    }
}
