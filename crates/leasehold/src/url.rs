//! Splits a URL into scheme, rest and options. The `Debug` of a URL shows only the scheme, and no error shows a text
//! that may be a part of a password.

use std::{fmt, time::Duration};

use leasehold_core::Error;
use percent_encoding::percent_decode_str;
use zeroize::Zeroize;

use crate::duration::parse_duration;

/// The schemes of databases with a server.
const DATABASES: [&str; 4] = ["postgres", "postgresql", "mysql", "mariadb"];

/// The option whose value is a URL.
const NESTED_URL: &str = "listen_url";
/// How the value of [`NESTED_URL`] is written.
pub(crate) const HOW_TO_ENCODE: &str = "percent-encode its whole value, as in \
    listen_url=postgres%3A%2F%2Fuser%40host%3A5432%2Fdatabase";

/// A URL, split into its parts.
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// The text between `scheme:` and `?`. It is still percent-encoded: an engine splits it before it decodes the
    /// parts.
    pub(crate) rest: String,
    /// The decoded options that no engine has taken yet.
    options: Vec<(String, String)>,
    /// Whether the text that looks like options may be the end of a password that contains a `?`. Then no error may
    /// show that text.
    is_ambiguous: bool,
    /// Whether the URL has the option [`NESTED_URL`]. Then an `@` after the `?` is probably of its value.
    has_nested_url: bool,
    /// The options that the engine has asked for so far. At the end, these are the known options of the scheme.
    known_options: Vec<&'static str>,
    /// The options that the program gives by [`Connect`](crate::Connect), not by the URL.
    from_program: Vec<&'static str>,
}

impl Url {
    /// A URL of parts. `rest` is percent-encoded, the options are not.
    #[cfg(any(
        feature = "tokio-postgres",
        feature = "sqlx-postgres",
        feature = "sqlx-mysql",
        feature = "sqlx-sqlite",
        feature = "mysql_async",
        feature = "redis-client"
    ))]
    pub(crate) fn of(scheme: &str, rest: String, options: Vec<(&'static str, String)>) -> Self {
        let options = options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let (known_options, from_program) = Default::default();
        let scheme = scheme.to_owned();
        let (is_ambiguous, has_nested_url) = (false, false);
        Self { scheme, rest, options, is_ambiguous, has_nested_url, known_options, from_program }
    }

    /// Adds an option that the program gives, unless the URL has it.
    pub(crate) fn add_default(&mut self, key: &'static str, value: &str) {
        if self.value(key).is_none() {
            self.options.push((key.to_owned(), value.to_owned()));
            self.from_program.push(key);
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let malformed =
            || Error::misconfigured("the URL has no scheme: write it like file: or file:///var/lib/locks");
        let (scheme, rest) = text.split_once(':').ok_or_else(malformed)?;
        let is_scheme_character = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(is_scheme_character) {
            return Err(malformed());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut options, mut open_nested_url) = (Vec::new(), false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if open_nested_url {
                return Err(not_encoded());
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            open_nested_url = key == NESTED_URL && value.contains('?');
            options.push((decode(key)?, decode(value)?));
        }
        let (scheme, rest, is_ambiguous) =
            (scheme.to_ascii_lowercase(), rest.to_owned(), query.contains('@'));
        let has_nested_url = options.iter().any(|(key, _)| key == NESTED_URL);
        let (known_options, from_program) = Default::default();
        Ok(Self { scheme, rest, options, is_ambiguous, has_nested_url, known_options, from_program })
    }

    /// The options that were not taken yet.
    #[cfg(all(
        test,
        feature = "tls",
        feature = "tokio-postgres",
        feature = "sqlx-postgres",
        feature = "sqlx-mysql",
        feature = "sqlx-sqlite",
        feature = "mysql_async",
        feature = "redis-client"
    ))]
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Takes an option out of the URL. If the option is given twice, the last value counts.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<String> {
        self.known_options.push(key);
        let taken = self.options.extract_if(.., |(known, _)| known == key).last();
        taken.map(|(_, value)| value)
    }

    /// Takes an option out of the URL, if `is_known` says that this kind of URL has the option.
    #[cfg(feature = "redis")]
    pub(crate) fn take_if(&mut self, is_known: bool, key: &'static str) -> Option<String> {
        if is_known { self.take(key) } else { None }
    }

    /// Whether an option has this value. If the option is given twice, the last value counts.
    #[cfg(feature = "tls")]
    pub(crate) fn option_is(&self, key: &str, value: &str) -> bool {
        self.options.iter().rfind(|(known, _)| known == key).is_some_and(|(_, last)| last == value)
    }

    /// The value of an option, which stays in the URL. If the option is given twice, the last value counts.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.options.iter().rfind(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether an option is given.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn has_option(&self, key: &str) -> bool {
        self.options.iter().any(|(known, _)| known == key)
    }

    /// Returns an error if the text that looks like options may be the end of a password.
    #[cfg(feature = "postgres")]
    pub(crate) fn check_unambiguous(&self) -> Result<(), Error> {
        if self.is_ambiguous { Err(self.ambiguous()) } else { Ok(()) }
    }

    /// Takes an option out of the URL and parses it as a duration. In the URLs of databases, a number without a unit is
    /// in seconds, as in the clients of these databases, and 0 means that the option is not given.
    pub(crate) fn take_duration(&mut self, key: &'static str) -> Result<Option<Duration>, Error> {
        let ambiguous = self.is_ambiguous.then(|| self.ambiguous());
        let is_bare_number =
            |value: &str| value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty();
        let is_in_seconds = DATABASES.contains(&self.scheme.as_str());
        let parse = |value: String| {
            let value = if is_in_seconds && is_bare_number(&value) { value + "s" } else { value };
            parse_duration(&value).map_err(|error| {
                ambiguous.unwrap_or_else(|| Error::misconfigured(format!("the URL option {key}: {error}")))
            })
        };
        let time = self.take(key).map(parse).transpose()?;
        Ok(time.filter(|time| !(is_in_seconds && time.is_zero())))
    }

    /// Takes an option out of the URL and parses it by `parse`, which returns `None` for a wrong value. `wanted`: which
    /// values are right, for the error.
    pub(crate) fn take_parsed<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            // The text that looks like an option may be the end of a password.
            None if self.is_ambiguous => Err(self.ambiguous()),
            None => Err(Error::misconfigured(format!("the URL option {key} is wrong: it must be {wanted}"))),
        }
    }

    /// Returns an error if an option is left that was not taken. The error lists the known options.
    #[cfg_attr(
        not(any(
            feature = "memory",
            feature = "file",
            feature = "redis",
            feature = "etcd",
            feature = "zookeeper",
            feature = "postgres",
            feature = "mysql",
            feature = "sqlite"
        )),
        expect(dead_code, reason = "no engine takes options")
    )]
    pub(crate) fn check_all_taken(&self) -> Result<(), Error> {
        let Some((key, _)) = self.options.first() else { return Ok(()) };
        if self.is_ambiguous {
            return Err(self.ambiguous());
        }
        let (scheme, known) = (&self.scheme, self.known_options.join(", "));
        if self.from_program.iter().any(|given| given == key) {
            return Err(Error::misconfigured(format!(
                "Connect::{key} is given, but the engine of {scheme} URLs has no such option: known options are {known}"
            )));
        }
        Err(Error::misconfigured(format!(
            "the URL option {key:?} is unknown to {scheme}: known options are {known}"
        )))
    }

    /// The error for a URL in which the text that looks like options may be the end of a password.
    fn ambiguous(&self) -> Error {
        if self.has_nested_url {
            return Error::misconfigured(format!(
                "the URL has an @ after its ?, probably in listen_url: {HOW_TO_ENCODE}; write ? in a password as %3F"
            ));
        }
        Error::misconfigured(
            "the URL has an @ after its ?: write ? in a password as %3F, and @ in an option as %40",
        )
    }

    /// If an error is due to the URL, adds a frequent cause to its message: special characters that are not escaped in
    /// the user or password.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let login = self.rest.strip_prefix("//").and_then(|rest| rest.rsplit_once('@'));
        let has_special_characters =
            login.is_some_and(|(login, _)| login.contains(['@', '/', '#']) || login.matches(':').count() > 1);
        if !error.is_misconfigured() {
            return error;
        }
        // In `//user:begin-of-a-password`, the end of the password looks like options.
        let may_be_a_cut_password =
            self.rest.strip_prefix("//").is_some_and(|rest| rest.contains(':') && !rest.contains('/'));
        if self.is_ambiguous && login.is_none() && may_be_a_cut_password {
            return self.ambiguous();
        }
        if !has_special_characters {
            return error;
        }
        Error::misconfigured(format!(
            "{error}; in a user or password, write @ as %40, : as %3A, / as %2F and # as %23"
        ))
    }
}

/// The error for a URL whose nested URL may go on behind the `&` that ends it.
fn not_encoded() -> Error {
    Error::misconfigured(format!(
        "the URL option listen_url is not percent-encoded, so it is not clear which of the URLs the options behind it are of: {HOW_TO_ENCODE}"
    ))
}

/// Percent-decodes a part of a URL.
pub(crate) fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| Error::misconfigured("the URL holds percent-escapes that are no UTF-8"))
}

impl Drop for Url {
    fn drop(&mut self) {
        self.rest.zeroize();
        self.options.iter_mut().for_each(|(_, value)| value.zeroize());
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({}:...)", self.scheme)
    }
}

#[cfg(all(test, feature = "redis", feature = "etcd"))]
mod tests {
    #[test]
    fn unescaped_characters_in_a_password_are_explained() {
        for scheme in ["redis", "etcd"] {
            let error_of = |login: &str| {
                let connected = crate::Locks::connect(&format!("{scheme}://{login}@h.example"));
                connected.err().map(|error| error.to_string()).unwrap_or_default()
            };
            let refused = error_of("app:p@ss:/wd");
            assert!(refused.contains("write @ as %40") && !refused.contains("wd"), "{scheme}: {refused}");
            assert!(!error_of("app:p%40ss%3A%2Fwd").contains("%40"), "{scheme}");
        }
    }

    /// For a URL parser, a `?` in a password ends the login; for a browser, a `#` does.
    #[cfg(all(feature = "postgres", feature = "mysql"))]
    #[test]
    fn an_unescaped_question_mark_or_hash_is_explained() {
        for scheme in ["redis", "postgres", "mysql"] {
            let error_of = |login: &str| {
                let connected = crate::Locks::connect(&format!("{scheme}://{login}@h.example/1"));
                connected.err().map(|error| error.to_string()).unwrap_or_default()
            };
            let refused = error_of("app:p?zzw");
            assert!(refused.contains("%3F") && !refused.contains("zzw"), "{scheme}: {refused}");
            let refused = error_of("app:p#zzw");
            assert!(refused.is_empty() || refused.contains("%23"), "{scheme}: {refused}");
            assert!(!refused.contains("zzw"), "{scheme}: {refused}");
        }
    }
}
