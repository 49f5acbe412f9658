//! A login by a proxy in front of this server, which says in a header who the user is.
//!
//! A header proves nothing by itself: it counts only from the addresses of the proxy, and only beside a secret that the
//! proxy adds. Nothing is trusted by default.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};

use super::{How, Identity, One, Peer, Role, one};
use crate::secret::{ProcessKey, Tokens};

/// The header with the secret of the proxy.
pub(crate) const SECRET_HEADER: &str = "x-leasehold-proxy-secret";

/// The proxy that is trusted.
pub(crate) struct Proxy {
    pub(crate) user_header: HeaderName,
    pub(crate) peers: Vec<IpAddr>,
    pub(crate) secret: Tokens,
    /// The users who may end holds.
    pub(crate) breakers: Vec<String>,
}

impl Proxy {
    /// The user that the proxy names; `None`: the request has neither of its headers.
    ///
    /// # Errors
    /// The header is not from the proxy, or is unclear.
    pub(super) fn identify(
        &self,
        key: &ProcessKey,
        Peer(peer): Peer,
        headers: &HeaderMap,
    ) -> Result<Option<Identity>, &'static str> {
        // Some programs read `X_User` as `X-User`: a proxy that replaces only one of them lets a user choose the other.
        let is_similar = |name: &HeaderName| {
            let own = |known: &str| name.as_str().contains('_') && name.as_str().replace('_', "-") == known;
            own(self.user_header.as_str()) || own(SECRET_HEADER)
        };
        if headers.keys().any(is_similar) {
            return Err("The request has a header that can be mistaken for one of the proxy.");
        }
        let (user, secret) = (one(headers, &self.user_header), one(headers, SECRET_HEADER));
        if (user, secret) == (One::None, One::None) {
            return Ok(None);
        }
        let (One::Value(user), One::Value(secret)) = (user, secret) else {
            return Err("The headers of the proxy are missing or come twice.");
        };
        let is_peer = self.peers.contains(&peer.ip().to_canonical());
        if !is_peer || self.secret.user(key, secret).is_none() {
            return Err("The headers of the proxy do not come from the proxy.");
        }
        if user.is_empty() {
            return Err("The proxy names no user.");
        }
        let may_break = self.breakers.iter().any(|breaker| breaker == user);
        let role = if may_break { Role::Break } else { Role::View };
        let form_key = format!("proxy {user}");
        Ok(Some(Identity { form_key, ..Identity::new(user, How::Proxy, role) }))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use axum::http::HeaderValue;

    use super::*;

    const SECRET: &str = "0123456789abcdef01234567";

    struct Case {
        key: ProcessKey,
        proxy: Proxy,
    }

    impl Case {
        fn new() -> Self {
            let key = ProcessKey::new().unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
            fs::write(file.path(), SECRET).unwrap();
            let secret = Tokens::read(file.path(), &key).unwrap();
            let (peers, breakers) = (vec!["192.0.2.1".parse().unwrap()], vec!["ada".to_owned()]);
            let user_header = HeaderName::from_static("x-auth-user");
            Self { key, proxy: Proxy { user_header, peers, secret, breakers } }
        }

        fn user(&self, peer: &str, pairs: &[(&'static str, &str)]) -> Result<Option<(String, Role)>, String> {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
            }
            let identity = self.proxy.identify(&self.key, Peer(peer.parse().unwrap()), &headers);
            Ok(identity?.map(|identity| (identity.who, identity.role)))
        }
    }

    #[test]
    fn only_the_proxy_names_users() {
        let (case, peer) = (Case::new(), "192.0.2.1:4000");
        let secret = (SECRET_HEADER, SECRET);
        let user = |peer, pairs: &[_]| case.user(peer, pairs);
        let ada = Ok(Some(("ada".to_owned(), Role::Break)));
        assert_eq!(user(peer, &[("x-auth-user", "ada"), secret]), ada);
        assert_eq!(user("[::ffff:192.0.2.1]:9", &[("x-auth-user", "ada"), secret]), ada);
        assert_eq!(user(peer, &[("x-auth-user", "eve"), secret]), Ok(Some(("eve".to_owned(), Role::View))));
        assert_eq!(user(peer, &[]), Ok(None));
        let wrong = (SECRET_HEADER, "0123456789abcdef01234568");
        for (peer, pairs) in [
            ("192.0.2.2:4000", &[("x-auth-user", "ada"), secret][..]),
            (peer, &[("x-auth-user", "ada")]),
            (peer, &[secret]),
            (peer, &[("x-auth-user", "ada"), wrong]),
            (peer, &[("x-auth-user", "ada"), ("x-auth-user", "ada"), secret]),
            (peer, &[("x-auth-user", "eve"), ("x_auth_user", "ada"), secret]),
            (peer, &[("x-auth_user", "ada"), secret]),
            (peer, &[("x-auth-user", "ada"), secret, secret]),
            (peer, &[("x-auth-user", ""), secret]),
        ] {
            assert!(user(peer, pairs).is_err(), "{peer} {pairs:?}");
        }
    }
}
