//! Facts about this process: its label, whether it was forked, and a hook for its exit.
//!
//! The only module of this crate with unsafe code. Both unsafe calls only register plain functions.
#![expect(unsafe_code, reason = "pthread_atfork and atexit have no safe wrapper")]

use std::{
    io::Read,
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

/// How many forks lead from the process that made the first `Locks` to this process: see [`generation`].
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Counts up before each fork of this process and after it: see [`forks`].
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and the children it forks. Reading it takes one atomic load.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A number that grows before and after each fork of this process and of its ancestors, from the first `Locks` on. A
/// file that was opened before the number last grew may be open in another process, too.
#[cfg(feature = "file")]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Registers hooks of the process: from now on forks are counted, and `at_exit` is called when the process ends by
/// `exit` or by returning from `main`.
pub(crate) fn register_hooks(at_exit: fn()) {
    static REGISTERED: Once = Once::new();
    static AT_EXIT: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

    // Counted before and after a fork: a file that another thread opens in between may or may not be inherited.
    extern "C" fn count_fork() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn begin_generation() {
        // The child has only this thread: only async-signal-safe operations are allowed here.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn run_at_exit() {
        if let Some(at_exit) = AT_EXIT.get() {
            at_exit();
        }
    }

    REGISTERED.call_once(|| {
        let _ = AT_EXIT.set(at_exit);
        // SAFETY: these are plain `extern "C"` functions that live as long as the program and never unwind:
        // `count_fork` and `begin_generation` add to an atomic, and a panic in `run_at_exit` aborts at the `extern "C"`
        // border. Failure (out of memory) only means that forks go unnoticed or releases are not waited for.
        unsafe {
            // The hooks run before a fork, after it in the parent, and after it in the child.
            libc::pthread_atfork(Some(count_fork), Some(count_fork), Some(begin_generation));
            libc::atexit(run_at_exit);
        }
    });
}

/// The default owner of a claim of this process, which `list` and `show` print for a holder: `user@host:pid`, as far as
/// the system knows it.
pub(crate) fn owner_label() -> String {
    owner_label_of(std::process::id())
}

/// The default owner of a claim of this process or of another process of this user and host.
pub(crate) fn owner_label_of(pid: u32) -> String {
    let uid = nix::unistd::geteuid();
    let user = local_user(uid.as_raw())
        .or_else(|| Some(nix::unistd::User::from_uid(uid).ok().flatten()?.name))
        .unwrap_or_else(|| uid.to_string());
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .unwrap_or_else(|| "?".into());
    format!("{user}@{host}:{pid}")
}

/// The file of the local users of this machine.
const USER_FILE: &str = "/etc/passwd";
/// How many bytes of [`USER_FILE`] are read at most: a name that is only displayed does not justify reading more.
const MAX_USER_FILE_BYTES: u64 = 64 << 10;

/// The name of a local user of this machine, read from [`USER_FILE`]. The C library would first load the name services
/// of the system and ask their daemons, which takes a short-lived command about as long as its lock does.
fn local_user(uid: u32) -> Option<String> {
    let mut users = Vec::with_capacity(4096);
    std::fs::File::open(USER_FILE).ok()?.take(MAX_USER_FILE_BYTES).read_to_end(&mut users).ok()?;
    find_user(&users, uid)
}

/// The name of the user with this uid in the content of a user file. Lines are `name:password:uid:...`; the first entry
/// with this uid counts, as in the C library.
fn find_user(users: &[u8], uid: u32) -> Option<String> {
    let users = std::str::from_utf8(users).ok()?;
    users.split_inclusive('\n').filter(|line| line.ends_with('\n')).find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid_text) = (fields.next()?, fields.nth(1)?);
        (uid_text.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_in_whole_lines_only() {
        let users =
            b"root:x:0:0:root:/root:/bin/sh\n+::::::\nnonsense\ntoor:x:0:0::/:\nme:x:7:7::/:\nlast:x:8:8";
        let name_of = |uid| find_user(users, uid);
        assert_eq!((name_of(0).as_deref(), name_of(7).as_deref()), (Some("root"), Some("me")));
        assert_eq!((name_of(8), name_of(9)), (None, None));
        assert_eq!(find_user(&[0xff, b'\n'], 0), None);
    }

    #[test]
    fn a_label_has_the_system_name_of_the_user() {
        let uid = nix::unistd::geteuid();
        let user =
            nix::unistd::User::from_uid(uid).unwrap().map_or_else(|| uid.to_string(), |user| user.name);
        assert!(owner_label().starts_with(&format!("{user}@")));
    }
}
