//! A password that is read again for each new connection.

use std::{error::Error as StdError, fmt, fs, future::ready, io::Read, path::Path, sync::Arc};

use zeroize::Zeroizing;

use crate::{BoxFuture, EngineError, Fault};

/// The longest password file that is accepted: a wrong file given by mistake must not fill the memory.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The user's function that returns the password.
type PasswordFunction = dyn Fn() -> BoxFuture<'static, Result<Zeroizing<String>, EngineError>> + Send + Sync;

/// The source of the password for a server. It is read at each connection, so that the password can be changed while
/// locks are held. Every copy kept or read here is overwritten with zeros after use. The `Debug` output shows nothing
/// of it.
#[derive(Clone)]
pub struct Password(Source);

#[derive(Clone)]
enum Source {
    Fixed(Arc<Zeroizing<String>>),
    File(Arc<Path>),
    Callback(Arc<PasswordFunction>),
}

impl Password {
    /// The content of a file, without the line feed at its end.
    #[must_use]
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self(Source::File(path.as_ref().into()))
    }

    /// The result of a function that is called at each connection; for instance a token that is valid for some minutes.
    /// Connecting waits for it, and treats its error as an outage that may pass. The function runs on the keeper's
    /// runtime and must not block; its error must not contain the password.
    #[must_use]
    pub fn callback<F, E>(function: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Source::Callback(Arc::new(move || {
            let answer = function();
            Box::pin(async move {
                answer.await.map(Zeroizing::new).map_err(|error| {
                    EngineError::new(Fault::Retry, format!("the password was not given: {}", error.into()))
                })
            })
        })))
    }

    /// Reads the current password.
    ///
    /// # Errors
    /// The problem with the file, or the callback's error.
    pub fn read(&self) -> BoxFuture<'static, Result<Zeroizing<String>, EngineError>> {
        match &self.0 {
            Source::Fixed(password) => Box::pin(ready(Ok(Zeroizing::clone(password)))),
            Source::File(path) => Box::pin(ready(read_file(path))),
            Source::Callback(function) => function(),
        }
    }
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
        for password in [fixed, from_file, from_callback] {
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
