//! The file of a handle: read, written as a whole, and removed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use leasehold::Handle;
use rustix::{
    fs::{AtFlags, CWD, linkat},
    io::Errno,
};

use crate::{
    cmd,
    exit::{self, Failure},
};

/// The largest file that is read as a handle file.
const MAX_FILE_BYTES: u64 = 4096;

/// Reads a handle file.
pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        let hint = if error.kind() == ErrorKind::NotFound { ": nothing was acquired with it" } else { "" };
        Failure::new(exit::USAGE, format!("--handle-file {}: {error}{hint}", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_FILE_BYTES), &mut text)
        .map_err(failed)?;
    Ok(text)
}

/// Removes an older handle file, before anything else can fail: if this acquire fails, a later `release` must not find
/// the handle of another one.
pub(crate) fn remove_older(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unwritable(path, &error)),
        _ => Ok(()),
    }
}

/// The failure for a path at which no handle file can be made.
fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::new(exit::USAGE, format!("--handle-file {path}: {error}: check the path and its permissions"))
}

/// A file for a handle: written beside its path, and moved there when the lock is granted.
pub(crate) struct HandleFile {
    path: PathBuf,
    beside: PathBuf,
}

impl HandleFile {
    /// Checks that the file can be made, so that a path that cannot be written is an error before the wait. Leaves no
    /// file, because this command may be killed during the wait.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().ok_or_else(|| unwritable(path, &ErrorKind::InvalidInput.into()))?;
        let mut beside_name = std::ffi::OsString::from(".");
        beside_name.push(name);
        beside_name.push(format!(".{}", std::process::id()));
        let file = Self { path: path.to_owned(), beside: path.with_file_name(beside_name) };
        let made = match file.open_unnamed() {
            Ok(_) => Ok(()),
            Err(error) if has_no_unnamed_files(&error) => {
                file.open_beside().and_then(|_| fs::remove_file(&file.beside))
            }
            Err(error) => Err(error),
        };
        made.map_err(|error| unwritable(path, &error))?;
        Ok(file)
    }

    /// Makes a file in the directory that has no name, so that nothing is left of it if this command is killed.
    fn open_unnamed(&self) -> io::Result<File> {
        let directory = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
    }

    /// Makes the file beside the path.
    fn open_beside(&self) -> io::Result<File> {
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.beside);
        match open() {
            // A command with the same process id was killed while it wrote.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&self.beside)?;
                open()
            }
            opened => opened,
        }
    }

    /// Writes the handle, and gives the file its name.
    fn write(&self, line: &str) -> io::Result<()> {
        match self.open_unnamed() {
            Ok(mut file) => {
                file.write_all(line.as_bytes())?;
                file.sync_all()?;
                // A system without `/proc` cannot name the file.
                self.name(&file).or_else(|_| self.write_beside(line))
            }
            Err(error) if has_no_unnamed_files(&error) => self.write_beside(line),
            Err(error) => Err(error),
        }
    }

    /// Gives a file without a name its name.
    fn name(&self, file: &File) -> io::Result<()> {
        let unnamed = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let link = || linkat(CWD, &unnamed, CWD, &self.path, AtFlags::SYMLINK_FOLLOW);
        match link() {
            // Another command has made the file since the start of this one, whose hold excludes that command.
            Err(Errno::EXIST) => {
                fs::remove_file(&self.path)?;
                Ok(link()?)
            }
            linked => Ok(linked?),
        }
    }

    /// Writes the handle where a file needs a name. If this command is killed now, the file stays.
    fn write_beside(&self, line: &str) -> io::Result<()> {
        let mut file = self.open_beside()?;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
        let moved = written.and_then(|()| fs::rename(&self.beside, &self.path));
        if moved.is_err() {
            let _ = fs::remove_file(&self.beside);
        }
        moved
    }
}

/// Whether the file system has no files without a name, as NFS.
fn has_no_unnamed_files(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::IsADirectory)
}

/// Writes the handle to its file, or prints it.
pub(crate) fn output(handle: &Handle, file: Option<HandleFile>) -> Result<(), Failure> {
    let line = format!("{handle}\n");
    let Some(file) = file else { return cmd::print(&line).map(drop) };
    let path = file.path.display().to_string();
    let failed =
        |error| Failure::new(exit::UNAVAILABLE, format!("--handle-file {path}: {error}: nothing is held"));
    file.write(&line).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("leasehold-{test}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A command that is killed at any point must leave either the whole file or none.
    #[test]
    fn a_handle_file_has_no_other_name_before_it_is_whole() {
        let dir = Dir::new("handle-file");
        let file = HandleFile::new(&dir.0.join("handle")).unwrap();
        let mut unnamed = file.open_unnamed().unwrap();
        unnamed.write_all(b"whole").unwrap();
        assert_eq!(dir.names(), [""; 0], "nothing is left if the command is killed now");
        file.name(&unnamed).unwrap();
        assert_eq!(dir.names(), ["handle"]);
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        // Another file of the name is replaced.
        file.write("new\n").unwrap();
        assert_eq!(
            (dir.names(), fs::read_to_string(&file.path).unwrap()),
            (vec!["handle".into()], "new\n".into())
        );
    }

    /// Some file systems have no files without a name.
    #[test]
    fn a_handle_file_is_moved_to_its_name_where_each_file_has_one() {
        let dir = Dir::new("handle-beside");
        let file = HandleFile::new(&dir.0.join("handle")).unwrap();
        file.write_beside("one\n").unwrap();
        file.write_beside("two\n").unwrap();
        assert_eq!(
            (dir.names(), fs::read_to_string(&file.path).unwrap()),
            (vec!["handle".into()], "two\n".into())
        );
        let missing = HandleFile::new(&dir.0.join("none/handle")).err().unwrap();
        assert!(missing.message.unwrap().contains("check the path and its permissions"));
    }
}
