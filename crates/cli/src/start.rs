//! Starts CMD under the lock, and explains why a start failed.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use leasehold::Locks;
use nix::errno::Errno;

use crate::{
    cgroup::Group,
    child::Child,
    cmd::run::{wait_failure, wait_interrupted},
    event_loop::EventLoop,
    exit::{self, Failure},
    front::FrontLink,
    holds::Holds,
    leaf::Leaf,
    nested::Hold,
    plan::Run,
    signals::interrupts_wait,
    spawn::{Spawn, Spawned, spawn},
    sweep::sweep,
    terminal::Terminal,
    tree::wait_for_all,
};

/// The largest number of bytes of a script's first line that are read. The kernel reads no more.
const MAX_FIRST_LINE: u64 = 256;

/// The path of a program. It is looked up in the way in which the system looks up programs.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(Path::new(program).to_owned()).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.exists())
}

/// The interpreter that a script's first line names. Characters that cannot be seen are shown by escapes.
fn interpreter(script: &Path) -> Option<String> {
    let mut beginning = Vec::new();
    File::open(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut beginning).ok()?;
    let line = beginning.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    line.trim_start_matches([' ', '\t']).split([' ', '\t']).next().map(|name| format!("{name:?}"))
}

/// The failure if CMD could not be started.
pub(crate) fn start_failure(plan: &Run, error: std::io::Error) -> Failure {
    let (program, name) = (plan.program.display(), plan.name.as_str());
    let message = |what: &str| format!("cannot run {program} under lock {name:?}: {what}");
    let error_text = error.to_string();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Failure::new(exit::NOT_FOUND, message(&not_found(&plan.program))),
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE) => {
            Failure::new(exit::UNAVAILABLE, message(&format!("{error_text}: raise the limits of this user")))
        }
        _ => Failure::new(exit::NOT_EXECUTABLE, message(&format!("{error_text}: is it executable?"))),
    }
}

/// Why a program was not found: because the program itself, its interpreter or its loader is missing.
fn not_found(program: &OsStr) -> String {
    let Some(path) = find_program(program) else {
        return "it is not found: check its name and PATH".to_owned();
    };
    match interpreter(&path) {
        Some(name) => format!("the interpreter that its first line names, {name}, is not found"),
        None => "the loader that it names is not found: is it a program for this system?".to_owned(),
    }
}

/// Whether processes that CMD started keep the lock after CMD has ended. They do so if they inherited the descriptor of
/// the lock file.
pub(crate) fn lock_is_inherited(plan: &Run, locks: &Locks, holds: Holds<'_>) -> bool {
    plan.pass_descriptor
        && plan.at_least.is_none()
        && lock_file_descriptors(locks, holds).is_ok_and(|descriptors| !descriptors.is_empty())
}

/// Starts CMD under the lock, in a control group if possible. `stdout` is the standard output of CMD; `None`: that of
/// this process.
pub(crate) fn start(
    plan: &Run,
    locks: &Locks,
    holds: Holds<'_>,
    event_loop: &EventLoop,
    front_link: &FrontLink,
    stdout: Option<OwnedFd>,
) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| start_failure(plan, error);
    let mut leaf = make_leaf(plan, locks, event_loop, front_link)?;
    let terminal = Terminal::find(front_link.group());
    let Spawned { pid, move_error } = spawn(Spawn {
        program: plan.program.clone(),
        arguments: plan.arguments.clone(),
        variables: Hold::variables_of(plan, holds),
        pass_url: plan.pass_url,
        initial_mask: event_loop.signals().initial_mask(),
        locks: if plan.pass_descriptor {
            lock_file_descriptors(locks, holds).map_err(failed)?
        } else {
            Vec::new()
        },
        stdout,
        terminal: match &terminal {
            Some(terminal) => terminal.descriptor_for_cmd().map_err(failed)?,
            None => None,
        },
        entrance: leaf.as_ref().ok().map(Leaf::entrance),
    })
    .map_err(|error| {
        // The process that could not become CMD has reported its error, but it may still be in the leaf.
        wait_for_all();
        failed(error)
    })?;
    if let (Some(errno), Ok(unused_leaf)) = (move_error, &leaf) {
        leaf = Err(format!("{}: CMD could not move there: {errno}", unused_leaf.path().display()));
    }
    Ok(Child::new(pid, terminal, leaf))
}

/// Makes a control group for CMD, or returns the reason why there is none. First ends the processes that killed runs
/// have left in their control groups.
fn make_leaf(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    front_link: &FrontLink,
) -> Result<Result<Leaf, String>, Failure> {
    let parent_group = match Group::of_this_process() {
        Ok(parent_group) => parent_group,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(signal) =
        sweep(&parent_group, plan.verbose > 0, event_loop, interrupts_wait).map_err(wait_failure)?
    {
        return Err(wait_interrupted(plan, locks, signal));
    }
    let leaf = Leaf::create(parent_group, front_link.pid());
    if let Ok(leaf) = &leaf {
        front_link.send_leaf(leaf.path()).map_err(|error| Failure::system("cannot start CMD", error))?;
    }
    Ok(leaf)
}

#[cfg(feature = "file")]
fn lock_file_descriptors(locks: &Locks, holds: Holds<'_>) -> std::io::Result<Vec<OwnedFd>> {
    holds.iter().filter_map(|guard| locks.descriptor(guard).transpose()).collect()
}

#[cfg(not(feature = "file"))]
fn lock_file_descriptors(_: &Locks, _: Holds<'_>) -> std::io::Result<Vec<OwnedFd>> {
    Ok(Vec::new())
}
