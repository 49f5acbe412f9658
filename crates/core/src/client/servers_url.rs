//! The part of an engine's URL with the servers and the login.

use percent_encoding::percent_decode_str;

use crate::{Endpoint, Error, Password};

/// Parses the part of a URL after the scheme. Its errors show nothing of the URL, which may hold a password.
#[derive(Clone, Copy, Debug)]
pub struct ServersUrl<'a> {
    /// The scheme.
    pub scheme: &'a str,
    /// The rest of a well-formed example URL, from the colon on.
    pub example: &'a str,
}

impl ServersUrl<'_> {
    /// The error for a malformed URL; `problem` completes the sentence "the URL …".
    #[must_use]
    pub fn malformed(&self, problem: &str) -> Error {
        let Self { scheme, example } = self;
        Error::misconfigured(format!("the {scheme} URL {problem}: write it like {scheme}{example}"))
    }

    /// Decodes the percent-escapes of a part of the URL.
    ///
    /// # Errors
    /// If the result is no UTF-8.
    pub fn decoded(&self, text: &str) -> Result<String, Error> {
        let decoded = percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        decoded.map_err(|_| self.malformed("holds percent-escapes that are no UTF-8"))
    }

    /// Splits the text after the two slashes: the login, the servers, and the path with its slash.
    ///
    /// # Errors
    /// If there are no two slashes.
    pub fn split<'t>(&self, rest: &'t str) -> Result<(Option<&'t str>, &'t str, &'t str), Error> {
        let rest = rest.strip_prefix("//").ok_or_else(|| self.malformed("has no //"))?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (servers, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        Ok((login, servers, path))
    }

    /// Parses one server.
    ///
    /// # Errors
    /// If it has no host, or its port is no number of a port.
    pub fn endpoint(&self, text: &str, default_port: u16) -> Result<Endpoint, Error> {
        let split = Endpoint::split(text, default_port);
        let (host, port) =
            split.ok_or_else(|| self.malformed("has a port that is no number from 0 to 65535"))?;
        let host = self.decoded(host)?;
        if host.is_empty() {
            return Err(self.malformed("names no host"));
        }
        Ok(Endpoint { host, port })
    }

    /// Parses a list of servers, separated by commas.
    ///
    /// # Errors
    /// If one of them is malformed.
    pub fn endpoints(&self, text: &str, default_port: u16) -> Result<Vec<Endpoint>, Error> {
        text.split(',').map(|server| self.endpoint(server, default_port)).collect()
    }

    /// Parses `user:password` or `user`.
    ///
    /// # Errors
    /// If there is no user.
    pub fn login(&self, text: &str) -> Result<(String, Password), Error> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() {
            return Err(self.malformed("has a password but no user"));
        }
        Ok((self.decoded(user)?, self.decoded(password)?.into()))
    }
}

/// Replaces the password of the login.
///
/// # Errors
/// If there is no user.
pub fn set_password(login: &mut Option<(String, Password)>, password: Password) -> Result<(), Error> {
    let Some((_, old)) = login else {
        return Err(Error::misconfigured("a password is given but no user: write user@ before the host"));
    };
    *old = password;
    Ok(())
}

/// The options that the configurations of engines with several servers and a login have in common: `login`, `password`,
/// `connect_timeout` and, with TLS, `tls`. Each sets the field of the same name. The argument of the macro is the doc
/// comment of `login`.
#[macro_export]
macro_rules! server_options {
    ($(#[$login:meta])*) => {
        /// Encrypts the connections.
        #[cfg(feature = "tls")]
        #[must_use]
        pub fn tls(mut self, tls: leasehold_tls::Tls) -> Self {
            self.tls = Some(tls);
            self
        }

        $(#[$login])*
        #[must_use]
        pub fn login(mut self, user: &str, password: impl Into<$crate::Password>) -> Self {
            self.login = Some((user.to_owned(), password.into()));
            self
        }

        /// The password of the user of the URL; read at each connection.
        ///
        /// # Errors
        /// [`is_misconfigured`](leasehold_core::Error::is_misconfigured) where there is no user.
        pub fn password(mut self, password: impl Into<$crate::Password>) -> Result<Self, $crate::Error> {
            $crate::set_password(&mut self.login, password.into())?;
            Ok(self)
        }

        /// How long connecting may take, to all servers together where there are several;
        /// [`CONNECT_TIMEOUT`](leasehold_core::CONNECT_TIMEOUT) by default. One attempt takes 3 s at most, or 1.5 s if
        /// there are several servers. With a `timeout` of zero, only this limit of one attempt applies.
        #[must_use]
        pub fn connect_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.connect_timeout = timeout;
            self
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: ServersUrl<'_> = ServersUrl { scheme: "x", example: "://host:7" };

    /// The user and the password of a login.
    fn read(login: Option<&(String, Password)>) -> (String, String) {
        let (user, password) = login.unwrap();
        (user.clone(), pollster::block_on(password.read()).unwrap().as_str().to_owned())
    }

    #[test]
    fn a_url_is_split_before_it_is_decoded() {
        let split = URL.split("//us%40er:p%3Aa%2Fs:s@a:1,[::1]:2,b%2d/path/to").unwrap();
        let (login, servers, path) = split;
        assert_eq!((servers, path), ("a:1,[::1]:2,b%2d", "/path/to"));
        let endpoint = |host: &str, port| Endpoint { host: host.to_owned(), port };
        assert_eq!(
            URL.endpoints(servers, 7).unwrap(),
            [endpoint("a", 1), endpoint("::1", 2), endpoint("b-", 7)]
        );
        let login = URL.login(login.unwrap()).unwrap();
        assert_eq!(read(Some(&login)), ("us@er".to_owned(), "p:a/s:s".to_owned()));
        assert_eq!(URL.split("//a").unwrap(), (None, "a", ""));
        assert_eq!(read(URL.login("u").ok().as_ref()), ("u".to_owned(), String::new()));
    }

    #[test]
    fn an_error_states_what_is_expected_and_shows_no_secret() {
        let results: [(Result<(), Error>, &str); 6] = [
            (URL.split("hunter2").map(drop), "has no //"),
            (URL.endpoints("a,,hunter2", 7).map(drop), "names no host"),
            (URL.endpoint("hunter2:x", 7).map(drop), "port"),
            (URL.endpoint("hunter2%ff", 7).map(drop), "UTF-8"),
            (URL.login(":hunter2").map(drop), "no user"),
            (URL.login("hunter2:%ff").map(drop), "UTF-8"),
        ];
        for (result, expected) in results {
            let error = result.unwrap_err();
            assert!(error.is_misconfigured());
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("write it like x://host:7"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_password_needs_a_user() {
        let mut login = Some(("u".to_owned(), Password::from("old".to_owned())));
        set_password(&mut login, "new".into()).unwrap();
        assert_eq!(read(login.as_ref()), ("u".to_owned(), "new".to_owned()));
        assert!(set_password(&mut None, "new".into()).unwrap_err().is_misconfigured());
    }
}
