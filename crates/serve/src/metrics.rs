//! The state of the engines as series for Prometheus.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use leasehold_ops::series::{CONTENT_TYPE, EngineState, Exposition, write_deadlocks};

use crate::state::Shared;

/// All series. The label `location` is the label of the engine on the page.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let (mut text, waits) = (Exposition::new(), shared.known_waits());
    let findings = waits.as_ref().map(|waits| waits.findings.as_slice());
    findings.iter().for_each(|findings| write_deadlocks(&mut text, findings));
    for engine in &shared.engines {
        let (look, health, totals) = (engine.look(), engine.health(), engine.totals().clone());
        let at = look.at.map(|at| UNIX_EPOCH + Duration::from_millis(at));
        let state = EngineState::new(engine.locks.profile().engine, &engine.label, &totals);
        let state = match (&look.error, at) {
            (None, Some(at)) => state.looked(at, &look.views),
            _ => state.away(at),
        };
        let level = health.guarantee.as_ref().and_then(|guarantee| guarantee.as_ref().ok());
        let diagnostics = health.diagnostics.as_ref().and_then(|found| found.as_ref().ok());
        state
            .level(level.map(|guarantee| guarantee.level))
            .findings(findings.filter(|_| look.error.is_none()))
            .diagnostics(diagnostics.map_or(&[], |found| found.as_slice()))
            .write(&mut text, &shared.metrics_names);
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.to_string()).into_response()
}
