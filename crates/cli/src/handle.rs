//! Handles on the command line: where a handle is read from and written to, and whether its hold is at this URL.

mod file;

use std::{fs, path::PathBuf, time::Duration};

use leasehold::{ErrorKind as Kind, Handle, HolderView, Locks, Loss, Mode, Owner};
use leasehold_ops::Reached;

pub(crate) use file::{HandleFile, output, remove_older};

use crate::{
    args::HandleOptions,
    cmd,
    exit::{self, Failure},
    holder::link,
    source::Given,
    text::{MIN_HOLD_OWNER, owner_text, print_message, short_duration},
};

/// The parameters of a URL that decide which locks it names. All others, and the user with its password, say only how
/// to connect.
const NAMING_PARAMETERS: [&str; 6] = ["prefix", "layout", "schema", "table", "hold", "lock_key"];

/// The ttl of a renewal that only asks why a hold is over. An engine waits for an answer for a part of the ttl.
const REASON_TTL: Duration = Duration::from_secs(10);

/// A handle, and the locks at the URL of this command.
pub(crate) struct Held {
    pub(crate) handle: Handle,
    pub(crate) locks: Locks,
    /// How the reader of a message reaches the engine.
    pub(crate) reached: Reached,
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

/// What a command wants of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// That it goes on.
    Keep,
    /// That it ends: somebody may have ended it already.
    End,
}

/// What the messages and the end of the command depend on.
struct Options {
    wish: Wish,
    file: Option<PathBuf>,
    quiet: bool,
}

impl Held {
    /// Reads the handle, and connects.
    pub(crate) fn new(
        options: &HandleOptions,
        wish: Wish,
        given: impl FnOnce() -> Result<Given, Failure>,
    ) -> Result<Self, Failure> {
        let text = match (&options.handle, &options.handle_file) {
            (Some(word), _) => word.clone(),
            (None, Some(path)) => file::read_file(path)?,
            (None, None) => return Err(Failure::new(exit::USAGE, "no HANDLE is given")),
        };
        let handle: Handle = text.trim_end().parse()?;
        let given = given()?;
        let locks = cmd::connect(&given.url)?;
        let held = Self {
            handle,
            reached: given.reached(locks.profile().engine),
            locks,
            options: Options { wish, file: options.handle_file.clone(), quiet: options.quiet },
            site: site_of(&given.url),
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

    /// Whether the handle was made with another URL, perhaps one for the same locks.
    pub(crate) fn is_of_another_url(&self) -> bool {
        self.handle.site().is_some_and(|site| site != self.site)
    }

    /// The failure if the engine does not have the hold.
    pub(crate) fn not_found(&self) -> Failure {
        if self.is_of_another_url() {
            let what = "this handle was made with another URL, and its hold is not here: give the URL of its acquire";
            return self.failure(exit::USAGE, what);
        }
        // What happens most often comes first.
        let is_of_process = self.locks.profile().no_handles.is_some();
        let why = match self.options.wish {
            // Such a hold has no lease of its own.
            Wish::Keep if is_of_process => {
                "the process of --while-pid has ended, or its holder process has, or it was released or broken"
            }
            Wish::End if is_of_process => {
                "it was released before, or the process of --while-pid has ended, or its holder process has, or it \
                 was broken"
            }
            Wish::Keep => {
                "its lease was not renewed in time (with --while-pid: that process has ended), or it was released or \
                 broken"
            }
            Wish::End => {
                "it was released before, or its lease was not renewed in time (with --while-pid: that process has \
                 ended), or it was broken"
            }
        };
        let what_to_do = match self.options.wish {
            Wish::Keep => "check for half-done work",
            Wish::End => "if no release ended it, check for half-done work",
        };
        self.over(why, what_to_do)
    }

    /// Extends the hold, which no process renews, to this time at least.
    ///
    /// # Errors
    /// If the hold is over, with the reason.
    pub(crate) fn extend(&self, ttl: Duration) -> Result<(), Failure> {
        match self.locks.extend_handle_blocking(&self.handle.clone().with_ttl(ttl)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_lost() => Err(self.lost(&error)),
            Err(error) => Err(error.into()),
        }
    }

    /// The failure for a hold that the engine does not show, with the reason that the answer to a renewal has.
    ///
    /// # Errors
    /// Always, unless the engine extends the hold after all.
    pub(crate) fn ended(&self) -> Result<(), Failure> {
        let ttl = REASON_TTL.min(*self.locks.profile().ttl.end());
        match self.locks.extend_handle_blocking(&self.handle.clone().with_ttl(ttl)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_lost() => Err(self.lost(&error)),
            // That the hold is over is known, only the reason is not.
            Err(_) => Err(self.not_found()),
        }
    }

    /// The failure for an error of the engine that says that the hold is lost.
    pub(crate) fn lost(&self, error: &leasehold::Error) -> Failure {
        match error.kind() {
            // The engine does not know the hold.
            Kind::Lost(Loss::Gone) => self.not_found(),
            Kind::Lost(loss) => self.is_over(&loss.to_string()),
            _ => self.is_over(&error.to_string()),
        }
    }

    /// The failure if the engine, or the holder process, knows that the hold is over, and why.
    pub(crate) fn is_over(&self, why: &str) -> Failure {
        self.over(why, "check for half-done work")
    }

    fn over(&self, why: &str, what_to_do: &str) -> Failure {
        let successor = self.successor().map_or_else(String::new, |holder| format!("; {holder}"));
        let reason = format!("{why}{successor}: {what_to_do}");
        let what = match self.options.wish {
            Wish::Keep => format!("the hold of this handle is over: {reason}"),
            Wish::End => format!("the hold of this handle was over before this release: {reason}"),
        };
        self.failure(exit::LOST, &what).hidden(self.options.quiet)
    }

    /// Who holds the name now, after an exclusive hold. `None`: nobody, or it is not known.
    fn successor(&self) -> Option<String> {
        // The message is not shown. Others hold the name beside a hold that is not exclusive.
        if self.options.quiet || self.handle.mode() != Mode::Exclusive {
            return None;
        }
        let view = self.locks.show_blocking(self.handle.name().as_str()).ok()?;
        let own = self.handle.id().to_string();
        let mut others = view.holders.iter().filter(|holder| holder.id != own);
        let holder = others.find(|holder| holder.foreign || holder.owner != MIN_HOLD_OWNER)?;
        let token = holder.token.map_or_else(String::new, |token| format!(" under token {token}"));
        Some(format!("{} holds the name now{token}", owner_text(holder)))
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

    /// What to do if the holder process of this hold is stopped, so that it neither renews nor answers. `None`: it is
    /// not stopped, or not here.
    pub(crate) fn stopped_holder(&self) -> Option<String> {
        let pid = link::stopped(&self.handle)?;
        Some(format!("its holder process {pid} is stopped (state T): continue it by `kill -CONT {pid}`"))
    }

    /// Says on stderr that the hold goes on, but not for long: its holder process is stopped, or has ended.
    pub(crate) fn warn_of_holder(&self, holder: &HolderView) {
        if self.options.quiet {
            return;
        }
        let is_session = self.locks.profile().no_handles.is_some();
        let end = match holder.remaining {
            Some(left) if !is_session => {
                format!(", and nobody renews it: it ends in {}", short_duration(left))
            }
            _ => String::new(),
        };
        let what = match self.stopped_holder() {
            Some(stopped) => format!("{stopped}{end}"),
            // The label of a process of this user and machine, which therefore should answer here.
            None if !is_session && is_of_a_process_here(&holder.owner) => {
                format!("its holder process has ended{end}, unless `leasehold renew` extends it")
            }
            None => return,
        };
        let (engine, name) = (self.locks.profile().engine, self.handle.name().as_str());
        print_message(&format!("{engine} lock {name:?}: {what}"));
    }

    /// Removes the handle file after the hold is certainly over, so that no later step uses it.
    pub(crate) fn remove_file(&self) {
        // A file that stays is harmless: its handle is refused.
        let _ = self.options.file.as_ref().map(fs::remove_file);
    }
}

/// Whether this is the label of a process of this user on this machine, as a holder process has it.
fn is_of_a_process_here(owner: &str) -> bool {
    let pid = owner.rsplit_once(':').and_then(|(_, pid)| pid.parse().ok());
    pid.is_some_and(|pid| Owner::of_process(pid).label() == owner)
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
