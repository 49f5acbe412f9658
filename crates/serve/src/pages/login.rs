//! Login by a token, and logout.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};

use super::{MaybeIdentity, field, fields, page as whole_page, refusal};
use crate::{
    guard::{How, Identity},
    html::Html,
    state::Shared,
    time::now_ms,
};

pub(crate) async fn form(State(shared): State<Arc<Shared>>, identity: MaybeIdentity) -> Response {
    login_page(&shared, identity.as_deref(), None)
}

/// Begins a session. The token comes in the body, and is never in an address.
pub(crate) async fn submit(State(shared): State<Arc<Shared>>, body: String) -> Response {
    let (body, access) = (fields(&body), &shared.access);
    let Some(identity) = access.of_token(field(&body, "token").trim(), How::Session) else {
        let page = login_page(&shared, None, Some("This token is not known."));
        return (StatusCode::FORBIDDEN, page).into_response();
    };
    let Ok(id) = access.sessions.begin(&access.key, identity, now_ms()) else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "The system has no randomness.");
    };
    with_cookie(Redirect::to("/").into_response(), &shared, &id, "")
}

pub(crate) async fn logout(State(shared): State<Arc<Shared>>, identity: MaybeIdentity) -> Response {
    if let Some(identity) = identity.filter(|identity| identity.how == How::Session) {
        shared.access.sessions.end(&identity.form_key);
    }
    with_cookie(Redirect::to("/login").into_response(), &shared, "", "; Max-Age=0")
}

fn login_page(shared: &Shared, identity: Option<&Identity>, problem: Option<&str>) -> Response {
    let mut html = Html::new();
    if let Some(problem) = problem {
        html.raw("<p role=\"alert\">").text(problem).raw("</p>");
    }
    if shared.access.has_login() {
        html.raw("<form method=\"post\" action=\"/login\"><label>Token ");
        html.raw("<input name=\"token\" type=\"password\" autocomplete=\"off\" required autofocus></label> ");
        html.raw("<button>Log in</button></form>");
    } else {
        html.raw("<p>There is no login by a token here.</p>");
    }
    whole_page("Log in", identity, false, &html)
}

/// The answer with the cookie of a session. Scripts cannot read it, and no other site can make a browser send it.
fn with_cookie(mut response: Response, shared: &Shared, id: &str, more: &str) -> Response {
    let (name, secure) =
        (shared.access.cookie_name(), if shared.access.is_encrypted { "; Secure" } else { "" });
    let cookie = format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
