//! Who may send which request. Every request passes [`check`] before it is routed.
//!
//! In this order: the name in `Host` must be one of this server, so that no foreign name leads a browser here; the
//! sender is identified; a request that changes something must come from a page of this server. Every answer gets the
//! headers that keep browsers from running, framing and storing what is no part of it.

mod headers;
mod host;
mod identity;
mod origin;
mod proxy;
mod session;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};

pub(crate) use self::{
    headers::{One, one},
    host::Hosts,
    identity::{How, Identity, Peer, Role},
    proxy::Proxy,
    session::Sessions,
};
use crate::{
    pages,
    secret::{ProcessKey, Tokens},
    state::Shared,
};

/// Who has access, and how they are known.
pub(crate) struct Access {
    pub(crate) hosts: Hosts,
    pub(crate) key: ProcessKey,
    pub(crate) view: Tokens,
    pub(crate) breaking: Tokens,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) sessions: Sessions,
    /// Whether holds can be broken at all.
    pub(crate) allows_breaks: bool,
    /// Whether the connections are encrypted by this server.
    pub(crate) is_encrypted: bool,
}

impl Access {
    /// Anyone who reaches the server may read.
    pub(crate) fn new(hosts: Hosts, key: ProcessKey) -> Self {
        let sessions = Sessions::default();
        let (view, breaking) = (Tokens::default(), Tokens::default());
        Self { hosts, key, view, breaking, proxy: None, sessions, allows_breaks: true, is_encrypted: false }
    }

    /// Whether requests without any proof of identity may read.
    pub(crate) const fn is_open(&self) -> bool {
        self.view.is_empty() && self.proxy.is_none()
    }

    /// Whether there is a token by which a person can log in.
    pub(crate) const fn has_login(&self) -> bool {
        !(self.view.is_empty() && self.breaking.is_empty())
    }

    /// The person and the right of a token.
    pub(crate) fn of_token(&self, token: &str, how: How) -> Option<Identity> {
        let breaker = self.breaking.user(&self.key, token);
        let viewer = self.view.user(&self.key, token);
        match (breaker, viewer) {
            (Some(user), _) if self.allows_breaks => Some(Identity::new(user, how, Role::Break)),
            (Some(user), _) => Some(Identity::new(user, how, Role::View)),
            (None, Some(user)) => Some(Identity::new(user, how, Role::View)),
            (None, None) => None,
        }
    }

    /// The name of the cookie. With `__Host-` a browser accepts it from this host alone, and only encrypted.
    pub(crate) const fn cookie_name(&self) -> &'static str {
        if self.is_encrypted { "__Host-leasehold" } else { "leasehold" }
    }
}

/// Paths that anyone may ask for, by any name of this machine: they tell no name of a lock, and the probes of an
/// orchestrator use the address of a container.
const HEALTH: [&str; 2] = ["/livez", "/readyz"];
/// Paths for which nobody needs to be known.
const PUBLIC: [&str; 3] = ["/login", "/page.css", "/page.js"];

/// Lets a request pass, or answers it.
pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&shared, peer, request) {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    headers::protect(response.headers_mut());
    response
}

#[expect(clippy::result_large_err, reason = "the error is the answer, and made one time for a request")]
fn admit(shared: &Shared, peer: Peer, mut request: Request) -> Result<Request, Response> {
    let (path, access) = (request.uri().path(), &shared.access);
    if HEALTH.contains(&path) {
        return Ok(request);
    }
    if !access.hosts.allow(request.headers(), request.uri()) {
        let why = "This server does not answer to the name in the request. Names are added by --host.";
        return Err(pages::refusal(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let identity = identity::identify(access, peer, request.headers())
        .map_err(|why| pages::refusal(StatusCode::FORBIDDEN, why))?;
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_bearer = identity.as_ref().is_some_and(|identity| identity.how == How::Token);
    if !is_read && !origin::is_own(request.headers(), is_bearer) {
        let why = "This request does not come from a page of this server.";
        return Err(pages::refusal(StatusCode::FORBIDDEN, why));
    }
    if identity.is_none() && !PUBLIC.contains(&path) {
        return Err(unknown(access, &request));
    }
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    Ok(request)
}

/// The answer to a request of nobody: browsers are sent to the login.
fn unknown(access: &Access, request: &Request) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_page = accept.is_some_and(|accept| accept.contains("text/html"));
    if access.has_login() && is_page && request.method() == Method::GET {
        return Redirect::to("/login").into_response();
    }
    let mut response = pages::refusal(StatusCode::UNAUTHORIZED, "This page needs a login.");
    let challenge = header::HeaderValue::from_static("Bearer realm=\"leasehold\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}
