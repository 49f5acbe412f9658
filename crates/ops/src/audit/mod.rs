//! The record of breaks: a file to which lines are only added, and the log of the system.
//!
//! The intent is on the disk before the hold is ended, and the outcome after. A break that cannot be recorded does not
//! happen.

mod break_record;
mod journal;

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Map, Value};

pub use break_record::BreakRecord;
pub use journal::Journal;

/// The fields of a line. They are written in the order of their names.
pub type Fields = Vec<(&'static str, Value)>;

/// A link is not followed, and the open of a pipe does not wait.
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Where breaks are recorded.
///
/// ```
/// use leasehold_ops::audit::{Audit, Journal};
/// # let dir = std::env::temp_dir().join(format!("leasehold-audit-{}", std::process::id()));
/// # std::fs::create_dir(&dir)?;
/// let path = dir.join("audit.jsonl");
/// let audit = Audit::open(&path, Journal::None)?;
/// audit.write(vec![("event", "intent".into()), ("name", "deploy".into())])?;
/// assert_eq!(std::fs::read_to_string(&path)?, "{\"event\":\"intent\",\"name\":\"deploy\"}\n");
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Audit {
    path: Arc<PathBuf>,
    journal: Arc<Journal>,
    /// Lines are added one after the other.
    writing: Arc<Mutex<()>>,
}

impl Audit {
    /// Checks that lines can be added to the file, and creates it if it is missing.
    ///
    /// # Errors
    /// An error of the operating system, or that it is no regular file.
    pub fn open(path: &Path, journal: Journal) -> io::Result<Self> {
        let is_new = !path.exists();
        open(path)?;
        if is_new && let Some(folder) = path.parent() {
            // The name of the file has to survive a crash, too.
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()?;
        }
        let (path, journal) = (Arc::new(path.to_owned()), Arc::new(journal));
        Ok(Self { path, journal, writing: Arc::default() })
    }

    /// Adds a line. When this returns, the line is on the disk. It blocks the thread.
    ///
    /// # Errors
    /// An error of the operating system. A part of the line may be in the file.
    pub fn write(&self, fields: Fields) -> io::Result<()> {
        let fields: Map<_, _> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let line = Value::Object(fields).to_string();
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Opened for each line: a program that rotates logs renames the file.
        let mut file = open(&self.path)?;
        let separator = if ends_with_line(&mut file)? { "" } else { "\n" };
        file.write_all(format!("{separator}{line}\n").as_bytes())?;
        file.sync_data()?;
        // The file is the record. The log of the system is a copy for whoever reads it there.
        if let Err(error) = self.journal.send(&line) {
            tracing::warn!("the log of the system did not take an audit line: {error}");
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).append(true).create(true).mode(0o600).custom_flags(OPEN_FLAGS).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Whether the file is empty or ends with a line feed. It does not after a crash, or when the disk was full.
fn ends_with_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn line(text: &str) -> Fields {
        vec![("b", Value::from(text)), ("a", Value::from(1))]
    }

    #[test]
    fn lines_are_added_to_whatever_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        fs::write(&path, "{\"cut").unwrap();
        let audit = Audit::open(&path, Journal::None).unwrap();
        audit.write(line("x\ny")).unwrap();
        fs::rename(&path, dir.path().join("audit.1")).unwrap();
        audit.write(line("second")).unwrap();
        let first = fs::read_to_string(dir.path().join("audit.1")).unwrap();
        assert_eq!(first, "{\"cut\n{\"a\":1,\"b\":\"x\\ny\"}\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1,\"b\":\"second\"}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for wrong in [dir.path(), &link, &dir.path().join("missing/audit")] {
            assert!(Audit::open(wrong, Journal::None).is_err(), "{}", wrong.display());
        }
    }
}
