//! Ends a hold for a person, with a record before and after.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Broken, HolderView, View};
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    task::{JoinError, spawn_blocking},
    time::sleep,
};

use crate::{
    audit::Audit,
    guard::Identity,
    secret::random,
    state::Shared,
    time::{millis, now_ms, rfc3339},
};

/// How long to wait for a holder that was asked to stop, as `leasehold break` does.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two requests that ask whether the hold has ended.
const ASK_PAUSE: Duration = Duration::from_millis(50);

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
            Self::NotHeld => "Nothing is held under this token. Nothing was done.".to_owned(),
            Self::Failed(why) => format!("The hold was not ended, or that is not known: {why}"),
            Self::NotRecorded(why) => format!("Nothing was done, because it cannot be recorded: {why}"),
            Self::DoneUnrecorded(outcome, why) => {
                format!("{} The audit file lacks this outcome: {why}", outcome.text())
            }
        }
    }

    /// The word in the audit.
    const fn word(&self) -> &'static str {
        match self {
            Self::Broken => "broken",
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
    let Some(holder) = before.holders.iter().find(|holder| is_token_of(holder, wish.token)) else {
        return Outcome::NotHeld;
    };
    let id = match random() {
        Ok(id) => id[..16].to_owned(),
        Err(error) => return Outcome::NotRecorded(error.to_string()),
    };
    let card = card(&before, holder);
    if let Err(why) = write(&audit, fields(shared, &wish, &id, "intent", vec![("holder", card)])).await {
        return Outcome::NotRecorded(why);
    }
    shared.history().expect_break(wish.engine, &wish.name, wish.token);
    let outcome = end(shared, &wish).await;
    if outcome == Outcome::Broken {
        shared.engines[wish.engine].totals().count_break();
    }
    let after = match show(shared, &wish).await {
        Ok(view) => holders(&view),
        Err(error) => json!({ "unknown": error }),
    };
    let why = match &outcome {
        Outcome::Failed(why) => Value::from(why.as_str()),
        _ => Value::Null,
    };
    let more = vec![("outcome", Value::from(outcome.word())), ("error", why), ("holders_after", after)];
    match write(&audit, fields(shared, &wish, &id, "outcome", more)).await {
        Ok(()) => outcome,
        Err(why) => Outcome::DoneUnrecorded(Box::new(outcome), why),
    }
}

/// Asks the engine to end the hold, and waits for a holder that it has to ask.
async fn end(shared: &Shared, wish: &Wish) -> Outcome {
    let give_up_at = Instant::now() + STOP_LIMIT;
    loop {
        let locks = shared.engines[wish.engine].breaker().clone();
        let (name, token, force, handle) = (wish.name.clone(), wish.token, wish.force, Handle::current());
        let call = move || handle.block_on(locks.break_hold(&name, token, force));
        match spawn_blocking(call).await.map_err(panicked) {
            Ok(Ok(Broken::Done)) => return Outcome::Broken,
            Ok(Ok(Broken::NotHeld)) => return Outcome::NotHeld,
            Ok(Ok(other)) => return Outcome::Failed(format!("unexpected result {other:?}")),
            Ok(Err(error)) if error.is_unreachable() && Instant::now() < give_up_at => sleep(ASK_PAUSE).await,
            Ok(Err(error)) => return Outcome::Failed(error.to_string()),
            Err(error) => return Outcome::Failed(error),
        }
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

async fn write(audit: &Audit, fields: Vec<(&'static str, Value)>) -> Result<(), String> {
    let audit = audit.clone();
    let written = spawn_blocking(move || audit.write(fields)).await.map_err(panicked)?;
    written.map_err(|error| error.to_string())
}

/// The fields of every line.
fn fields(
    shared: &Shared,
    wish: &Wish,
    id: &str,
    event: &str,
    more: Vec<(&'static str, Value)>,
) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("time", Value::from(rfc3339(now_ms()))),
        ("event", Value::from(event)),
        ("id", Value::from(id)),
        ("who", Value::from(wish.identity.who.as_str())),
        ("known_by", Value::from(wish.identity.how.word())),
        ("address", Value::from(wish.address.to_string())),
        ("engine", Value::from(shared.engines[wish.engine].label.as_str())),
        ("name", Value::from(wish.name.as_str())),
        ("token", Value::from(wish.token)),
        ("force", Value::from(wish.force)),
        ("reason", Value::from(wish.reason.as_str())),
    ];
    fields.extend(more);
    fields
}

/// The hold that is to end.
fn card(view: &View, holder: &HolderView) -> Value {
    json!({
        "owner": holder.owner,
        "token": holder.token,
        "held_ms": holder.held.map(millis),
        "remaining_ms": holder.remaining.map(millis),
        "waiters": view.waiters.len(),
    })
}

fn holders(view: &View) -> Value {
    let holder = |holder: &HolderView| json!({ "owner": holder.owner, "token": holder.token });
    Value::Array(view.holders.iter().map(holder).collect())
}

/// Whether the page showed this hold under this token.
fn is_token_of(holder: &HolderView, token: u64) -> bool {
    holder.token == Some(token)
}
