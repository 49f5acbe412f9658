//! Starting CMD: what it inherits, and what it must not.
//!
//! The only module of this command with unsafe code: asking for and resetting a signal's disposition, a fork, and the steps
//! between fork and exec.
#![expect(unsafe_code, reason = "signal dispositions, fork and pre_exec have no safe interface")]

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        prctl::set_pdeathsig,
        signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction},
    },
    unistd::{ForkResult, Pid, getpid, getppid, tcsetpgrp},
};

use crate::source::withhold;

/// How this process found its signals, which is how CMD is to find them.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    mask: SigSet,
}

/// What to start.
pub(crate) struct Spawn {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Added to the environment, which is otherwise passed on as it is, but for the URL.
    pub(crate) variables: [(&'static str, String); 4],
    /// Whether the variables stay that say where the locks are.
    pub(crate) pass_url: bool,
    pub(crate) found: Found,
    /// The descriptor under the lock, for CMD to keep open.
    pub(crate) lock: Option<OwnedFd>,
    /// The terminal whose foreground CMD is to be in.
    pub(crate) terminal: Option<OwnedFd>,
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null `act` changes nothing; `action` is valid for writing one `sigaction`, of which all-zero bytes are a
    // valid value should the call fail.
    let action = unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Blocks signals for this thread and those it will start, and makes sure that the end of a child is told.
///
/// # Errors
/// The operating system's.
pub(crate) fn take_signals(blocked: &SigSet) -> Result<Found, Errno> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // Who started us may have ignored it, and then the kernel would keep no child for us to wait for.
    // SAFETY: installing the default action runs no code of ours.
    unsafe { sigaction(Signal::SIGCHLD, &default)? };
    let mask = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    Ok(Found { mask })
}

/// Splits this process in two: in the one that goes on the answer is the number of the new one, in which it is `None`. Only a
/// process with one thread may call it.
///
/// # Errors
/// The operating system's, when it has no room for another process.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: with one thread no lock is held by another one that the new process lacks, so all it may do is as safe there as
    // here.
    match unsafe { nix::unistd::fork()? } {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Becomes CMD, which finds the signals as this process did.
///
/// # Errors
/// Why it cannot be executed.
pub(crate) fn become_cmd(
    program: &OsString,
    arguments: &[OsString],
    pass_url: bool,
    found: Found,
) -> io::Error {
    let mut command = command(program, arguments, pass_url);
    match found.mask.thread_set_mask() {
        Ok(()) => command.exec(),
        Err(errno) => errno.into(),
    }
}

fn command(program: &OsString, arguments: &[OsString], pass_url: bool) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    if !pass_url {
        withhold(&mut command);
    }
    command
}

/// Starts CMD in a process group of its own. Only the main thread may call it: when the calling *thread* ends, CMD is
/// killed.
///
/// # Errors
/// Why CMD cannot be executed.
pub(crate) fn spawn(what: Spawn) -> io::Result<Pid> {
    let Spawn { program, arguments, variables, pass_url, found, lock, terminal } = what;
    let parent = getpid();
    let mut command = command(&program, &arguments, pass_url);
    command.envs(variables).process_group(0);
    let prepare = move || -> io::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            // It died before the line above: nobody will tell us.
            return Err(Errno::ESRCH.into());
        }
        if let Some(terminal) = &terminal {
            // From the background, where we are, this would stop us: the signal is blocked while we do it.
            SigSet::from(Signal::SIGTTOU).thread_block()?;
            // Without it CMD runs in the background, as it does without a terminal.
            let _ = tcsetpgrp(terminal, getpid());
        }
        if let Some(lock) = &lock {
            fcntl(lock.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        found.mask.thread_set_mask()?;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are made (prctl, getppid, getpid, sigprocmask,
    // tcsetpgrp, fcntl), nothing is allocated or locked, and the errors made are plain numbers.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}
