//! The changes of a page, as server-sent events. Each event has only what changed since the event before it.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{RawQuery, State},
    http::{HeaderName, HeaderValue, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use crate::{
    guard::{How, Identity},
    html::visible,
    pages::{self, locks::Cells},
    state::Shared,
    table::Query,
    time::now_ms,
};

/// The least time between two events of one page, however many engines there are.
const EVENT_PERIOD: Duration = Duration::from_millis(250);
/// The time after which a comment is sent, so that proxies do not end a connection on which nothing happens.
const COMMENT_PERIOD: Duration = Duration::from_secs(15);

/// Follows the rows of a page, until the client leaves, its session ends, or the server stops.
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(permit) = Arc::clone(&shared.streams).try_acquire_owned() else {
        let why = "Too many pages follow the changes. This page shows them when it is loaded anew.";
        return pages::refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let follower = Follower {
        looks: shared.looks.subscribe(),
        stopping: shared.stopping.subscribe(),
        query: Query::parse(query.as_deref().unwrap_or_default()),
        shared,
        identity,
        sent: HashMap::new(),
        order: None,
        next_at: Instant::now(),
        number: 0,
        _permit: permit,
    };
    let events = stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(COMMENT_PERIOD)).into_response();
    // For nginx, which otherwise keeps events until it has many.
    let buffering = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(buffering, HeaderValue::from_static("no"));
    response
}

/// A page that follows.
struct Follower {
    shared: Arc<Shared>,
    identity: Identity,
    query: Query,
    looks: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    /// The rows as they were sent last, by their addresses.
    sent: HashMap<String, Cells>,
    /// The addresses of the rows in the order that was sent last.
    order: Option<Vec<String>>,
    next_at: Instant,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next event; `None`: it ends.
    async fn next(&mut self) -> Option<Event> {
        if self.order.is_some() {
            tokio::select! {
                changed = self.looks.changed() => changed.ok()?,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
            tokio::select! {
                () = sleep_until(self.next_at) => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
            self.looks.mark_unchanged();
        }
        self.next_at = Instant::now() + EVENT_PERIOD;
        if !self.may_still_read() {
            return None;
        }
        self.number += 1;
        let data = self.changes().to_string();
        Some(Event::default().id(self.number.to_string()).data(data))
    }

    /// Whether the session of the page still lasts.
    fn may_still_read(&self) -> bool {
        let sessions = &self.shared.access.sessions;
        self.identity.how != How::Session
            || sessions.by_signature(&self.identity.form_key, now_ms()).is_some()
    }

    /// What changed since the last event.
    fn changes(&mut self) -> Value {
        let (selection, now) = (self.shared.select(&self.query), now_ms());
        let mut event = Map::new();
        event.insert("now".to_owned(), now.into());
        event.insert("status".to_owned(), pages::locks::status(&selection).into());
        event.insert("engines".to_owned(), engines(&self.shared, now));
        event.insert("waits".to_owned(), pages::waits::summary(&self.shared).json());
        let mut rows = Vec::new();
        let mut order = Vec::new();
        let mut sent = HashMap::new();
        for (engine, row) in selection.rows() {
            let cells = Cells::new(&self.shared.engines[engine].label, row);
            let address = cells.link.clone();
            let before = self.sent.remove(&address);
            if before.as_ref() != Some(&cells) {
                rows.push(cells.json());
            }
            order.push(address.clone());
            sent.insert(address, cells);
        }
        self.sent = sent;
        event.insert("rows".to_owned(), rows.into());
        if self.order.as_ref() != Some(&order) {
            event.insert("order".to_owned(), order.clone().into());
            self.order = Some(order);
        }
        Value::Object(event)
    }
}

/// The state of each engine.
fn engines(shared: &Shared, now: u64) -> Value {
    let engine = |engine: &crate::state::EngineState| {
        let look = engine.look();
        json!({
            "label": visible(&engine.label),
            "level": engine.health().level(),
            "state": visible(&look.state_text(now)),
            "at": look.at,
            "is_away": look.error.is_some() || look.is_stale(now),
        })
    };
    Value::Array(shared.engines.iter().map(engine).collect())
}
