//! The paths of the server, each with its handler.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use crate::{events, guard, metrics, pages, state::Shared};

/// The largest body of a request, in bytes: a form with a name, a token and a reason.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// All paths. Every request passes the guard before it is routed.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(pages::locks::page))
        .route("/name", get(pages::name::page))
        .route("/history", get(pages::history::page))
        .route("/waits", get(pages::waits::page))
        .route("/engines", get(pages::engines::page))
        .route("/break", get(pages::break_::form).post(pages::break_::submit))
        .route("/login", get(pages::login::form).post(pages::login::submit))
        .route("/logout", post(pages::login::logout))
        .route("/events", get(events::events))
        .route("/metrics", get(metrics::metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/page.css", get(style))
        .route("/page.js", get(script))
        .fallback(missing)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard::check))
        .with_state(shared)
}

async fn missing() -> Response {
    pages::refusal(StatusCode::NOT_FOUND, "There is no such page.")
}

/// Whether the process answers. It asks no engine: an outage of an engine is no reason to start this process anew.
async fn live() -> &'static str {
    "ok\n"
}

/// Whether each engine was looked at, as the last look says.
async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let is_ready =
        |engine: &crate::state::EngineState| engine.look().error.is_none() && engine.look().at.is_some();
    match shared.engines.iter().all(is_ready) {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "an engine is away\n").into_response(),
    }
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("assets/page.css"))
}

async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("assets/page.js"))
}
