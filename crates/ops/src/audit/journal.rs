//! The log of the system: journald by its socket, else syslog.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

const JOURNALD: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// `LOG_AUTHPRIV` with the level "notice", in syslog's numbers: ten times eight, and five.
const PRIORITY: &str = "<85>";

/// A socket of the log of the system.
#[derive(Debug)]
#[non_exhaustive]
pub enum Journal {
    /// There is no log, or no copy is wanted.
    None,
    /// The socket of journald, which takes fields.
    Fields(PathBuf),
    /// The socket of syslog, which takes a line.
    Line(PathBuf),
}

impl Journal {
    /// The log of this system, if it has one.
    #[must_use]
    pub fn of_system() -> Self {
        match (Path::new(JOURNALD), Path::new(SYSLOG)) {
            (journald, _) if journald.exists() => Self::Fields(journald.to_owned()),
            (_, syslog) if syslog.exists() => Self::Line(syslog.to_owned()),
            _ => Self::None,
        }
    }

    /// Sends a line of JSON, which has no line feed.
    pub(crate) fn send(&self, line: &str) -> io::Result<()> {
        let (path, message) = match self {
            Self::None => return Ok(()),
            Self::Fields(path) => (
                path,
                format!("MESSAGE={line}\nPRIORITY=5\nSYSLOG_FACILITY=10\nSYSLOG_IDENTIFIER=leasehold\n"),
            ),
            Self::Line(path) => (path, format!("{PRIORITY}leasehold[{}]: {line}", std::process::id())),
        };
        let socket = UnixDatagram::unbound()?;
        // A log that does not read must not hold up a break, whose record is on the disk already.
        socket.set_nonblocking(true)?;
        socket.send_to(message.as_bytes(), path).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(journal: impl Fn(PathBuf) -> Journal) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        journal(path).send("{\"a\":1}").unwrap();
        let mut buffer = [0; 1000];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn each_log_gets_the_line_in_its_form() {
        let fields = received(Journal::Fields);
        assert!(
            fields.starts_with("MESSAGE={\"a\":1}\n") && fields.contains("\nSYSLOG_IDENTIFIER=leasehold\n")
        );
        let line = received(Journal::Line);
        assert!(line.starts_with("<85>leasehold[") && line.ends_with("]: {\"a\":1}"), "{line}");
        assert!(Journal::Line("/nonexistent/socket".into()).send("x").is_err());
    }
}
