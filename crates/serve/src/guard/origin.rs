//! Whether a request that changes something comes from a page of this server, and not from another site that makes a
//! browser send it (CSRF). Forms have a token besides; this check needs no state.

use axum::http::HeaderMap;

use super::{One, one};

/// Whether the request was made by a page of this server. `is_bearer`: it proves who sends it by a token in a header,
/// which a browser adds to no request of another site; then a program may send neither header.
pub(super) fn is_own(headers: &HeaderMap, is_bearer: bool) -> bool {
    match (one(headers, "sec-fetch-site"), one(headers, "origin")) {
        (One::Value(site), _) => site == "same-origin",
        // A browser that does not send the first header, or sends it only when encrypted. `Host` is one of our names:
        // that was checked before.
        (One::None, One::Value(origin)) => {
            let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            matches!((authority, one(headers, "host")), (Some(of), One::Value(host)) if of == host)
        }
        (One::None, One::None) => is_bearer,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn own(pairs: &[(&'static str, &'static str)], is_bearer: bool) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        is_own(&headers, is_bearer)
    }

    #[test]
    fn only_pages_of_this_server_may_change_something() {
        let host = ("host", "localhost:8080");
        assert!(own(&[host, ("sec-fetch-site", "same-origin"), ("origin", "null")], false));
        assert!(own(&[host, ("origin", "http://localhost:8080")], false));
        assert!(own(&[host], true), "a program with a token");
        for foreign in [
            &[host][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://localhost:8081")],
            &[host, ("origin", "http://localhost:8080.evil.example")],
            &[host, ("origin", "localhost:8080")],
            &[host, ("origin", "http://localhost:8080"), ("origin", "http://evil.example")],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "http://localhost:8080")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!own(foreign, false), "{foreign:?}");
        }
        assert!(!own(&[host, ("sec-fetch-site", "cross-site")], true), "a browser, whatever its token");
    }
}
