//! A password that is read again for each new connection.

use std::{error::Error as StdError, fmt, fs, future::ready, io::Read, path::Path, sync::Arc};

use zeroize::Zeroizing;

use crate::{BoxFuture, EngineError, Fault};

/// The longest password file that is accepted: a wrong file given by mistake must not fill the memory.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The user's function that returns the password, and perhaps the user.
type LoginFunction = dyn Fn() -> BoxFuture<'static, Result<Login, EngineError>> + Send + Sync;

/// What a connection logs in with: a password, and a user if the source of the password also names one.
pub type Login = (Option<String>, Zeroizing<String>);

/// The source of the password for a server. It is read at each connection, so that the password can be changed while
/// locks are held. Every copy kept or read here is overwritten with zeros after use. The `Debug` output shows nothing
/// of it.
#[derive(Clone)]
pub struct Password(Source);

#[derive(Clone)]
enum Source {
    Fixed(Arc<Zeroizing<String>>),
    File(Arc<Path>),
    Callback(Arc<LoginFunction>),
    /// The function that returns the user too.
    Credentials(Arc<LoginFunction>),
}

/// A user and the password of this user, for one connection: the result of the function of [`Password::credentials`].
/// The password is overwritten with zeros after use. The `Debug` output does not show it.
pub struct Credentials {
    user: String,
    password: Zeroizing<String>,
}

impl Credentials {
    /// The login of `user` with `password`.
    ///
    /// ```
    /// let login = leasehold::Credentials::new("app", "secret");
    /// assert!(!format!("{login:?}").contains("secret"));
    /// ```
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: Zeroizing::new(password.into()) }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Password {
    /// The content of a file, without the line feed at its end.
    ///
    /// ```
    /// use leasehold::{Connect, Password};
    /// # fn main() -> Result<(), leasehold::Error> {
    /// let password = Password::file("/run/secrets/redis");
    /// # drop(Connect::default().password(password));
    /// // Connect::default().password(password).connect("redis://app@redis.example")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self(Source::File(path.as_ref().into()))
    }

    /// The result of a function that is called at each connection; for instance a token that is valid for some minutes.
    /// Connecting waits for it, and treats its error as an outage that may pass. The function runs on the keeper's
    /// runtime and must not block; its error must not contain the password.
    ///
    /// ```
    /// use leasehold::Password;
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let password = Password::callback(|| async { token().await });
    /// ```
    #[must_use]
    pub fn callback<F, E>(function: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let login = |password| (None, Zeroizing::new(password));
        Self(Source::Callback(login_function(function, login)))
    }

    /// The user and the password that a function returns; it is called at each connection, as that of
    /// [`callback`](Self::callback). The user replaces the user of the URL: for secrets that name a new user each time,
    /// such as those of Vault. For PostgreSQL, MySQL and Redis.
    ///
    /// ```
    /// use leasehold::{Credentials, Password};
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let login = Password::credentials(|| async {
    ///     Ok::<_, std::io::Error>(Credentials::new("app", token().await?))
    /// });
    /// ```
    #[must_use]
    pub fn credentials<F, E>(function: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let login = |Credentials { user, password }| (Some(user), password);
        Self(Source::Credentials(login_function(function, login)))
    }

    /// Whether this source also names the user: then [`read_login`](Self::read_login) must be used.
    #[doc(hidden)]
    #[must_use]
    pub const fn names_user(&self) -> bool {
        matches!(self.0, Source::Credentials(_))
    }

    /// Reads the current password.
    ///
    /// # Errors
    /// The problem with the file, or the callback's error.
    #[doc(hidden)]
    pub fn read(&self) -> BoxFuture<'static, Result<Zeroizing<String>, EngineError>> {
        let login = self.read_login();
        Box::pin(async { login.await.map(|(_, password)| password) })
    }

    /// Reads the current password, and the user if this source names one.
    ///
    /// # Errors
    /// The problem with the file, or the callback's error.
    #[doc(hidden)]
    pub fn read_login(&self) -> BoxFuture<'static, Result<Login, EngineError>> {
        match &self.0 {
            Source::Fixed(password) => Box::pin(ready(Ok((None, Zeroizing::clone(password))))),
            Source::File(path) => Box::pin(ready(read_file(path).map(|password| (None, password)))),
            Source::Callback(function) | Source::Credentials(function) => function(),
        }
    }
}

/// The user's function, with its result as a login, and its error as an outage that may pass.
fn login_function<T, F, E>(
    function: impl Fn() -> F + Send + Sync + 'static,
    login: fn(T) -> Login,
) -> Arc<LoginFunction>
where
    T: 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    Arc::new(move || {
        let answer = function();
        Box::pin(async move {
            answer.await.map(login).map_err(|error| {
                EngineError::new(Fault::Retry, format!("the password was not given: {}", error.into()))
            })
        })
    })
}

fn read_file(path: &Path) -> Result<Zeroizing<String>, EngineError> {
    let unreadable = |fault, why: &dyn fmt::Display| {
        EngineError::new(fault, format!("cannot read the password from {}: {why}", path.display()))
    };
    let from_io = |error: std::io::Error| {
        let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        unreadable(if denied { Fault::Denied } else { Fault::Misconfigured }, &error)
    };
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(from_io)?.is_file() {
        return Err(unreadable(Fault::Misconfigured, &"it is no regular file"));
    }
    // Reserves the full size at once: a string that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES as usize + 1));
    let file = fs::File::open(path).map_err(from_io)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(from_io)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(Fault::Misconfigured, &format!("it is longer than {MAX_FILE_BYTES} bytes")));
    }
    // Without the line feed that an editor adds.
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() {
        // Another process may be about to write it.
        return Err(unreadable(Fault::Retry, &"it is empty"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

impl From<String> for Password {
    fn from(password: String) -> Self {
        Self(Source::Fixed(Arc::new(Zeroizing::new(password))))
    }
}

impl From<&str> for Password {
    fn from(password: &str) -> Self {
        password.to_owned().into()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Fixed(_) => f.write_str("Password(fixed)"),
            Source::File(path) => write!(f, "Password(file {})", path.display()),
            Source::Callback(_) => f.write_str("Password(callback)"),
            Source::Credentials(_) => f.write_str("Password(credentials)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The password as it is read now.
    fn read(password: &Password) -> Result<String, EngineError> {
        pollster::block_on(password.read()).map(|password| password.as_str().to_owned())
    }

    #[test]
    fn each_source_is_read_each_time_and_never_displayed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let from_file = Password::file(file.path());
        for (text, expected) in
            [("hunter2\n", "hunter2"), ("hunter3", "hunter3"), ("hunter4 \r\n", "hunter4 ")]
        {
            fs::write(file.path(), text).unwrap();
            assert_eq!(read(&from_file).unwrap(), expected);
        }
        let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let calls_of_callback = Arc::clone(&calls);
        let from_callback = Password::callback(move || {
            let count = calls_of_callback.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ready(if count < 2 { Ok(format!("hunter{count}")) } else { Err("no token today") })
        });
        assert_eq!([read(&from_callback).unwrap(), read(&from_callback).unwrap()], ["hunter0", "hunter1"]);
        let error = read(&from_callback).unwrap_err();
        assert!(error.fault == Fault::Retry && error.message.contains("no token today"), "{error:?}");
        let fixed = Password::from("hunter2");
        assert_eq!(read(&fixed).unwrap(), "hunter2");
        let with_user =
            Password::credentials(|| ready(Ok::<_, std::io::Error>(Credentials::new("me", "hunter4"))));
        let (user, password) = pollster::block_on(with_user.read_login()).unwrap();
        assert_eq!((user.as_deref(), password.as_str()), (Some("me"), "hunter4"));
        assert_eq!(read(&with_user).unwrap(), "hunter4");
        assert!(with_user.names_user() && !fixed.names_user() && !from_callback.names_user());
        assert_eq!(pollster::block_on(fixed.read_login()).unwrap().0, None);
        let shown = format!("{:?}", Credentials::new("me", "hunter4"));
        assert!(shown.contains("me") && !shown.contains("hunter"), "{shown}");
        for password in [fixed, from_file, from_callback, with_user] {
            assert!(!format!("{password:?}").contains("hunter"), "{password:?}");
        }
    }

    #[test]
    fn a_file_without_a_password_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("empty"), "\n").unwrap();
        fs::write(path("long"), "x".repeat(MAX_FILE_BYTES as usize + 1)).unwrap();
        fs::write(path("binary"), b"hunter2\xff").unwrap();
        for (name, fault) in [
            ("none", Fault::Misconfigured),
            ("empty", Fault::Retry),
            ("long", Fault::Misconfigured),
            ("binary", Fault::Misconfigured),
            (".", Fault::Misconfigured),
        ] {
            let error = read(&Password::file(path(name))).unwrap_err();
            assert_eq!(error.fault, fault, "{name}: {}", error.message);
            assert!(error.message.contains(path(name).to_str().unwrap()), "{}", error.message);
            assert!(!error.message.contains("hunter2"), "{}", error.message);
        }
    }
}
