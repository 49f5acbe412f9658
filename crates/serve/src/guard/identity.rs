//! Who sends a request.

use std::net::SocketAddr;

use axum::http::HeaderMap;

use super::{Access, One, one};
use crate::time::now_ms;

/// The address of the other end of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// A person or program that is known, or that need not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The name, for the audit.
    pub(crate) who: String,
    pub(crate) how: How,
    pub(crate) role: Role,
    /// What the tokens of forms are bound to: a form of one session is none of another.
    pub(crate) form_key: String,
}

/// How the sender is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Not at all.
    Anonymous,
    /// By a token in the header `Authorization`.
    Token,
    /// By a cookie, given for a token.
    Session,
    /// By a proxy.
    Proxy,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Read.
    View,
    /// Read, and end holds.
    Break,
}

impl Identity {
    pub(crate) fn new(who: &str, how: How, role: Role) -> Self {
        Self { who: who.to_owned(), how, role, form_key: String::new() }
    }
}

impl How {
    /// The word in the audit.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Token => "token",
            Self::Session => "session",
            Self::Proxy => "proxy",
        }
    }
}

/// Who sends this request; `None`: nobody that may read.
///
/// # Errors
/// The proof is forged or unclear.
pub(super) fn identify(
    access: &Access,
    peer: Peer,
    headers: &HeaderMap,
) -> Result<Option<Identity>, &'static str> {
    if let Some(proxy) = &access.proxy
        && let Some(identity) = proxy.identify(&access.key, peer, headers)?
    {
        return Ok(Some(identity));
    }
    match one(headers, "authorization") {
        One::Value(value) => {
            let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let identity = token.and_then(|(_, token)| access.of_token(token.trim(), How::Token));
            return identity.map(Some).ok_or("This token is not known.");
        }
        One::Unclear => return Err("The request has more than one Authorization."),
        One::None => {}
    }
    if let Some(id) = cookie(headers, access.cookie_name())
        && let Some(identity) = access.sessions.identity(&access.key, id, now_ms())
    {
        return Ok(Some(identity));
    }
    Ok(access.is_open().then(|| Identity::new("anonymous", How::Anonymous, Role::View)))
}

/// The only cookie of this name. Two cookies of one name mean that another server of this host name set one.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all("cookie").iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
    let value = values.next();
    value.filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_cookie_that_comes_twice_is_none() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("other=1; leasehold=ab"));
        assert_eq!(cookie(&headers, "leasehold"), Some("ab"));
        assert_eq!(cookie(&headers, "hold"), None);
        headers.append("cookie", HeaderValue::from_static("leasehold=cd"));
        assert_eq!(cookie(&headers, "leasehold"), None);
    }
}
