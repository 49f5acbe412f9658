//! The parts of a URL: scheme, what follows, options. Its `Debug` and its errors show the scheme only: the rest may hold a
//! password.

use std::{fmt, time::Duration};

use leasehold_core::Error;
use percent_encoding::percent_decode_str;

use crate::duration::parse_duration;

/// A URL, taken apart.
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// Between `scheme:` and `?`, percent-decoded.
    #[cfg_attr(
        not(any(feature = "memory", feature = "file")),
        expect(dead_code, reason = "no engine reads it")
    )]
    pub(crate) rest: String,
    options: Vec<(String, String)>,
}

/// The options that every engine knows.
#[derive(Default)]
pub(crate) struct Common {
    pub(crate) connect_timeout: Option<Duration>,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let malformed =
            || Error::misconfigured("the URL has no scheme: write it like file: or file:///var/lib/locks");
        let (scheme, rest) = text.split_once(':').ok_or_else(malformed)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(plain) {
            return Err(malformed());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.push((decode(key)?, decode(value)?));
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest: decode(rest)?, options })
    }

    /// The common options; an unknown one is an error that lists the known.
    pub(crate) fn common_options(&self) -> Result<Common, Error> {
        let mut common = Common::default();
        for (key, value) in &self.options {
            match key.as_str() {
                "connect_timeout" => {
                    common.connect_timeout = Some(parse_duration(value).map_err(|error| {
                        Error::misconfigured(format!("the URL option connect_timeout: {error}"))
                    })?);
                }
                _ => {
                    let scheme = &self.scheme;
                    return Err(Error::misconfigured(format!(
                        "the URL option {key:?} is unknown to {scheme}: it knows connect_timeout"
                    )));
                }
            }
        }
        Ok(common)
    }
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| Error::misconfigured("the URL holds percent-escapes that are no UTF-8"))
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({}:...)", self.scheme)
    }
}
