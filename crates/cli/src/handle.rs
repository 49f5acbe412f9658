//! Handles on the command line: where a handle is read from and written to, and whether its hold is at this URL.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use leasehold::{Handle, HolderView, Locks, Loss};

use crate::{
    args::HandleOptions,
    cmd,
    exit::{self, Failure},
};

/// The parameters of a URL that decide which locks it names. All others, and the user with its password, say only how
/// to connect.
const NAMING_PARAMETERS: [&str; 6] = ["prefix", "layout", "schema", "table", "hold", "lock_key"];
/// The largest file that is read as a handle file.
const MAX_FILE_BYTES: u64 = 4096;

/// A handle, and the locks at the URL of this command.
pub(crate) struct Held {
    pub(crate) handle: Handle,
    pub(crate) locks: Locks,
    options: Options,
    /// The number of the URL of this command.
    site: u32,
}

/// What the engine shows of a hold.
pub(crate) enum Shown {
    Held(Box<HolderView>),
    NotHeld,
    /// The name is held; the server does not store by which claim.
    Unclear,
}

/// What the messages and the end of the command depend on.
struct Options {
    file: Option<PathBuf>,
    quiet: bool,
}

impl Held {
    /// Reads the handle, and connects.
    pub(crate) fn new(
        options: &HandleOptions,
        url: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<Self, Failure> {
        let text = match (&options.handle, &options.handle_file) {
            (Some(word), _) => word.clone(),
            (None, Some(path)) => read_file(path)?,
            (None, None) => return Err(Failure::new(exit::USAGE, "no HANDLE is given")),
        };
        let handle: Handle = text.trim_end().parse()?;
        let url = url()?;
        let locks = cmd::connect(&url)?;
        let held = Self {
            handle,
            locks,
            options: Options { file: options.handle_file.clone(), quiet: options.quiet },
            site: site_of(&url),
        };
        let (here, of) = (held.locks.profile().engine, held.handle.engine());
        if here != of {
            let what = format!("this handle is of a hold on {of}: give the URL of its acquire");
            return Err(held.failure(exit::USAGE, &what));
        }
        Ok(held)
    }

    /// A failure about this hold.
    pub(crate) fn failure(&self, code: u8, what: &str) -> Failure {
        let (engine, name) = (self.locks.profile().engine, self.handle.name().as_str());
        Failure::new(code, format!("{engine} lock {name:?}: {what}"))
    }

    /// The failure if the engine does not have the hold.
    pub(crate) fn not_found(&self) -> Failure {
        if self.handle.site().is_some_and(|site| site != self.site) {
            let what = "this handle was made with another URL, and its hold is not here: give the URL of its acquire";
            return self.failure(exit::USAGE, what);
        }
        self.is_over("it was released, or broken, or not renewed in time")
    }

    /// The failure for an error of the engine that says that the hold is lost.
    pub(crate) fn lost(&self, error: &leasehold::Error) -> Failure {
        match error.kind() {
            // The engine does not know the hold.
            leasehold::ErrorKind::Lost(Loss::Gone) => self.not_found(),
            leasehold::ErrorKind::Lost(loss) => self.is_over(&loss.to_string()),
            _ => self.is_over(&error.to_string()),
        }
    }

    /// The failure if the engine, or the holder process, knows that the hold is over, and why.
    pub(crate) fn is_over(&self, why: &str) -> Failure {
        let what = format!("the hold of this handle is over: {why}: check for half-done work");
        self.failure(exit::LOST, &what).hidden(self.options.quiet)
    }

    /// What the engine shows of the hold.
    pub(crate) fn look(&self) -> Result<Shown, Failure> {
        let view = self.locks.show_blocking(self.handle.name().as_str())?;
        let id = self.handle.id().to_string();
        if let Some(holder) = view.holders.iter().find(|holder| holder.id == id && !holder.foreign) {
            return Ok(Shown::Held(Box::new(holder.clone())));
        }
        // Without claims on the server, a holder is shown by its session.
        let is_unclear = !self.locks.profile().stores_claims && !view.holders.is_empty();
        Ok(if is_unclear { Shown::Unclear } else { Shown::NotHeld })
    }

    /// Removes the handle file after the hold is certainly over, so that no later step uses it.
    pub(crate) fn remove_file(&self) {
        // A file that stays is harmless: its handle is refused.
        let _ = self.options.file.as_ref().map(fs::remove_file);
    }
}

/// Reads a handle file.
fn read_file(path: &Path) -> Result<String, Failure> {
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
        let made = file.open_beside().and_then(|_| fs::remove_file(&file.beside));
        made.map_err(|error| unwritable(path, &error))?;
        Ok(file)
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

    /// Writes the handle, and moves the file to its path.
    fn write(&self, line: &str) -> io::Result<()> {
        let mut file = self.open_beside()?;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
        let moved = written.and_then(|()| fs::rename(&self.beside, &self.path));
        if moved.is_err() {
            let _ = fs::remove_file(&self.beside);
        }
        moved
    }
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

/// A number for the locks that a URL names: a hash of the URL without its user, its password and all options that say
/// only how to connect. It is used for a message alone: two URLs for the same locks may have two numbers.
pub(crate) fn site_of(url: &str) -> u32 {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let file = place.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
    // A relative path counts from the working directory, and the next command may have another one.
    let file = file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    let (scheme, place) = match &file {
        Some(path) => ("sqlite", path.to_str().unwrap_or_default()),
        None => {
            let (scheme, place) = place.split_once("://").unwrap_or(("", place));
            // A password may contain a colon, a slash or an at sign.
            (scheme, place.rsplit('@').next().unwrap_or_default())
        }
    };
    let names_locks =
        |option: &&str| option.split_once('=').is_some_and(|(key, _)| NAMING_PARAMETERS.contains(&key));
    let mut options: Vec<&str> = query.split('&').filter(names_locks).collect();
    options.sort_unstable();
    let parts = [scheme, place].into_iter().chain(options);
    let bytes = parts.flat_map(|part| part.bytes().chain([b'\n']));
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_of_a_url_depends_on_what_names_the_locks_alone() {
        let same = [
            "redis://h:1/2",
            "redis://u:p@h:1/2",
            "redis://u:p@/x:y@h:1/2?connect_timeout=1s&password_file=/f",
        ];
        assert!(same.iter().all(|url| site_of(url) == site_of(same[0])));
        let other =
            ["redis://h:1/3", "redis://g:1/2", "rediss://u@h:1/2", "redis://h:1/2?prefix=a:", "file:"];
        for (index, url) in other.iter().enumerate() {
            let before = other[..index].iter().chain(&same[..1]);
            assert!(before.into_iter().all(|before| site_of(url) != site_of(before)), "{url}");
        }
        assert_eq!(site_of("redis://h?prefix=a&schema=b"), site_of("redis://h?schema=b&prefix=a"));
    }

    #[test]
    fn the_site_of_a_relative_file_depends_on_the_working_directory() {
        let absolute = format!("sqlite://{}/a.db", std::env::current_dir().unwrap().display());
        for url in ["sqlite:a.db", "sqlite://a.db", "sqlite:./a.db?mode=rw"] {
            assert_eq!(site_of(url), site_of(&absolute), "{url}");
        }
        assert_ne!(site_of("sqlite:///a.db"), site_of(&absolute));
    }
}
