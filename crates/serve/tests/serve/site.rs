//! A server on an engine in memory, with its files in a private directory.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use leasehold::{Blocking, Guard, Locks};
use leasehold_ops::Reached;
use leasehold_serve::{EngineSource, Server, Settings};
use tempfile::TempDir;

use crate::http::{Answer, PATIENCE, request, send};

pub(crate) const VIEW: &str = "view-canary-0123456789abcdef";
pub(crate) const BREAK: &str = "break-canary-0123456789abcdef";
/// The headers of a request by a page of the server.
pub(crate) const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");

/// A server, its locks and its files.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) locks: Locks,
    /// The same locks, as two other processes have them.
    pub(crate) others: [Locks; 2],
    pub(crate) dir: TempDir,
}

impl Site {
    /// Starts a server on loopback, with changed settings.
    pub(crate) fn start(change: impl FnOnce(&mut Settings, &Path)) -> Self {
        let ([locks, other, third], dir) = (locks(), tempfile::tempdir().unwrap());
        let source = EngineSource {
            label: "main".to_owned(),
            locks: locks.clone(),
            breaker: None,
            reached: Reached::AsHere,
        };
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap(), vec![source]);
        change(&mut settings, dir.path());
        Self { server: Server::start(settings).unwrap(), locks, others: [other, third], dir }
    }

    /// A server that anyone may read.
    pub(crate) fn open() -> Self {
        Self::start(|_, _| ())
    }

    /// A server that needs a token to be read, and another one to break.
    pub(crate) fn with_tokens() -> Self {
        Self::start(|settings, dir| {
            settings.view_tokens = Some(file(dir, "view", &format!("vera {VIEW}\n")));
            settings.break_tokens = Some(file(dir, "break", &format!("ada {BREAK}\n")));
            settings.allow_break = true;
            settings.audit = Some(dir.join("audit"));
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        send(self.address(), &request("GET", path, headers, ""))
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        send(self.address(), &request("POST", path, headers, &body))
    }

    /// The cookie of a session that begins with this token.
    pub(crate) fn log_in(&self, token: &str) -> String {
        let answer = self.post("/login", &[OWN], &[("token", token)]);
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
        answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    pub(crate) fn hold(&self, name: &str) -> Guard {
        self.request(name).acquire().unwrap()
    }

    fn request(&self, name: &str) -> Blocking {
        self.locks.mutex(name).blocking()
    }

    /// Waits until a page shows this text, and returns the page.
    pub(crate) fn until_shown(&self, path: &str, headers: &[(&str, &str)], text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path, headers);
            if answer.body.contains(text) {
                return answer.body;
            }
            assert!(Instant::now() < end, "{path} never shows {text}: {answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Locks of this test alone, as three processes have them.
pub(crate) fn locks() -> [Locks; 3] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let url = format!("memory:site-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    [&url, &url, &url].map(|url| Locks::connect(url).unwrap())
}

/// Writes a private file.
pub(crate) fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The header with a token.
pub(crate) fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}
