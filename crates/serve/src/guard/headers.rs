//! Headers of requests, read without guessing, and those of every answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// A header that may come at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum One<'a> {
    None,
    Value(&'a str),
    /// It came more than once, or it is no text: two programs could read it differently.
    Unclear,
}

/// The only value of a header.
pub(crate) fn one(headers: &HeaderMap, name: impl header::AsHeaderName) -> One<'_> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => One::None,
        (Some(value), None) => value.to_str().map_or(One::Unclear, One::Value),
        (Some(_), Some(_)) => One::Unclear,
    }
}

/// What a browser may do with a page: nothing but show it, load its own script and style, follow its own events, and
/// send its own forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers that protect an answer in a browser.
pub(super) fn protect(headers: &mut HeaderMap) {
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    // Not `no-referrer`: with it browsers send `Origin: null` with the forms of our own pages.
    set(header::REFERRER_POLICY, "same-origin");
    set(header::CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_comes_twice_is_unclear() {
        let mut headers = HeaderMap::new();
        assert_eq!(one(&headers, "host"), One::None);
        headers.append("host", HeaderValue::from_static("a"));
        assert_eq!(one(&headers, "host"), One::Value("a"));
        headers.append("host", HeaderValue::from_static("a"));
        assert_eq!(one(&headers, "host"), One::Unclear);
        headers.insert("host", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(one(&headers, "host"), One::Unclear);
    }
}
