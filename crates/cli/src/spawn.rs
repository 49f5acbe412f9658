//! Starts CMD. Decides what CMD inherits and what it does not inherit.
//!
//! This is the only module of this command with unsafe code: it reads and resets what a signal does, forks, creates a
//! process in a control group, runs steps between fork and exec, copies a descriptor
//! that the user named, and closes descriptors that a new process inherited.
#![expect(
    unsafe_code,
    reason = "signal dispositions, fork, clone3, pre_exec and exec have no safe interface"
)]

use std::{
    collections::BTreeMap,
    ffi::{CString, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            process::CommandExt,
        },
    },
    process::Command,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        eventfd::{EfdFlags, EventFd},
        prctl::set_pdeathsig,
        signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, dup2_stdout, getpid, getppid, setpgid, tcsetpgrp, write},
};

use crate::{exit, source::withhold};

/// The signal mask with which this process was started. CMD is started with the same mask.
#[derive(Clone, Copy)]
pub(crate) struct InitialMask {
    mask: SigSet,
}

/// The parameters for starting CMD.
pub(crate) struct Spawn<'a> {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Variables that are added to the environment. Apart from them, CMD gets the environment of this process; without
    /// `pass_url`, the variables with the URL are removed from it.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Whether the variables with the engine's URL stay in the environment.
    pub(crate) pass_url: bool,
    pub(crate) initial_mask: InitialMask,
    /// The descriptors of the lock files. CMD inherits them and keeps them open.
    pub(crate) locks: Vec<OwnedFd>,
    /// The standard output of CMD; `None`: that of this process.
    pub(crate) stdout: Option<OwnedFd>,
    /// The terminal in whose foreground CMD is to run.
    pub(crate) terminal: Option<OwnedFd>,
    /// The control group that CMD is to run in.
    pub(crate) entrance: Option<Entrance<'a>>,
}

/// Two ways by which a process can get into a control group.
pub(crate) struct Entrance<'a> {
    /// The group's directory, for a process that is created in the group.
    pub(crate) group: &'a File,
    /// The group's `cgroup.procs`, for a process that moves into the group.
    pub(crate) processes: &'a File,
}

/// The result of starting CMD.
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    /// Why CMD is not in its control group. `None`: CMD is in it, or it has none.
    pub(crate) move_error: Option<Errno>,
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null `act` changes nothing; `action` is valid for writing one `sigaction`. All-zero bytes are a valid
    // value of it, should the call fail.
    let action = unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Blocks signals for this thread and for the threads that it starts later. Also makes sure that SIGCHLD is not
/// ignored. Returns the previous signal mask.
///
/// # Errors
/// An error of the operating system.
pub(crate) fn block_signals(blocked: &SigSet) -> Result<InitialMask, Errno> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // The parent of this process may have made it ignore SIGCHLD. Then this process could not wait for ended children.
    // SAFETY: installing the default action runs no code of ours.
    unsafe { sigaction(Signal::SIGCHLD, &default)? };
    let mask = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    Ok(InitialMask { mask })
}

/// Forks this process. Returns the id of the new process in the old process, and `None` in the new process. Call this
/// only in a process with one thread.
///
/// # Errors
/// An error of the operating system: it cannot create a process.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: the process has one thread, so no other thread can hold a lock at the fork. Therefore all code is as safe
    // in the new process as in this one.
    match unsafe { nix::unistd::fork()? } {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Closes all descriptors of this process but the standard ones and those in `kept`. Call this only in a new process in
/// which no other value owns a descriptor.
///
/// # Errors
/// An error of the operating system: `/proc` cannot be read.
pub(crate) fn close_inherited(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let kept: Vec<i32> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<i32>().ok();
    // The list contains the descriptor that reads it, which is closed when the list is complete.
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?.filter_map(number).collect();
    for number in open.into_iter().filter(|number| *number > libc::STDERR_FILENO && !kept.contains(number)) {
        // SAFETY: the caller says that no value owns it; a number that is not open is an error, which is ignored.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// A copy of an open descriptor of this process. It shares the position in the file, and CMD does not inherit it.
///
/// # Errors
/// An error of the operating system: no descriptor has this number.
pub(crate) fn duplicate(number: i32) -> io::Result<File> {
    // SAFETY: the call does not change the descriptor; if none has this number, it is an error.
    match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, so nothing else owns it.
        copy => Ok(unsafe { File::from_raw_fd(copy) }),
    }
}

/// Replaces the program of this process with CMD. CMD starts with the signal mask with which this process was started.
/// Returns only if this fails.
///
/// # Errors
/// Why CMD cannot be executed.
pub(crate) fn become_cmd(
    program: &OsString,
    arguments: &[OsString],
    variables: Vec<(&'static str, String)>,
    pass_url: bool,
    initial_mask: InitialMask,
) -> io::Error {
    let mut command = command(program, arguments, pass_url);
    command.envs(variables);
    match initial_mask.mask.thread_set_mask() {
        Ok(()) => command.exec(),
        Err(errno) => errno.into(),
    }
}

/// Starts `/bin/sh -c TEXT` in a process group of its own, without input, with these variables added to the environment
/// of CMD. It is killed when this process ends. Call this only in the main thread, as [`spawn`].
///
/// # Errors
/// Why the shell cannot be executed.
pub(crate) fn spawn_shell(
    text: &OsString,
    variables: Vec<(&'static str, String)>,
    pass_url: bool,
    initial_mask: InitialMask,
) -> io::Result<Pid> {
    let mut command = command(&OsString::from("/bin/sh"), &["-c".into(), text.clone()], pass_url);
    command.envs(variables).stdin(std::process::Stdio::null()).process_group(0);
    let parent = getpid();
    let prepare = move || -> io::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(Errno::ESRCH.into());
        }
        Ok(initial_mask.mask.thread_set_mask()?)
    };
    // SAFETY: `prepare` calls only async-signal-safe functions (prctl, getppid, sigprocmask) and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    Ok(Pid::from_raw(command.spawn()?.id() as i32))
}

/// The command for CMD. Unless `pass_url`, the variables with the URL are removed from its environment.
fn command(program: &OsString, arguments: &[OsString], pass_url: bool) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    // An outer run of several names, or of `once`, may have set them.
    command.env_remove(crate::nested::HOLDS);
    command.env_remove(crate::nested::PREVIOUS);
    if !pass_url {
        withhold(&mut command);
    }
    command
}

/// Starts CMD in a process group of its own. Call this only in the main thread: the kernel kills CMD when the *thread*
/// that started CMD ends. If CMD cannot get into its control group, CMD is started outside of the group.
///
/// # Errors
/// Why CMD cannot be executed.
pub(crate) fn spawn(parameters: Spawn<'_>) -> io::Result<Spawned> {
    let Spawn { program, arguments, variables, pass_url, initial_mask, locks, stdout, terminal, entrance } =
        parameters;
    let mut command = command(&program, &arguments, pass_url);
    command.envs(variables);
    let setup = ChildSetup { parent: getpid(), initial_mask, locks, stdout, terminal };
    // If the kernel is older than 5.7, or a filter of system calls does not know `clone3`, no process can be created in
    // a control group. Then CMD moves into the control group after its creation.
    if let Some(entrance) = &entrance
        && let Ok(pid) = spawn_in_group(entrance.group, &setup, &ExecArguments::of(&command)?)?
    {
        return Ok(Spawned { pid, move_error: None });
    }
    spawn_then_move(command, setup, entrance)
}

/// The settings that the new process applies to itself between fork and exec.
struct ChildSetup {
    /// The id of this process. CMD must not live longer than this process.
    parent: Pid,
    initial_mask: InitialMask,
    locks: Vec<OwnedFd>,
    stdout: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

impl ChildSetup {
    /// Applies the settings in the new process. Between fork and exec only async-signal-safe calls are made (prctl,
    /// getppid, getpid, sigprocmask, tcsetpgrp, fcntl, dup2). Nothing is allocated or locked. Errors are plain numbers.
    fn apply(&self) -> Result<(), Errno> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != self.parent {
            // The parent died before prctl was called, so the kernel will not send the signal for its death.
            return Err(Errno::ESRCH);
        }
        if let Some(terminal) = &self.terminal {
            // The new process is in the background, so tcsetpgrp would stop it by SIGTTOU. Therefore the signal is
            // blocked for the call.
            SigSet::from(Signal::SIGTTOU).thread_block()?;
            // If this fails, CMD runs in the background, as it does without a terminal.
            let _ = tcsetpgrp(terminal, getpid());
        }
        for lock in &self.locks {
            fcntl(lock.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        if let Some(stdout) = &self.stdout {
            dup2_stdout(stdout)?;
        }
        self.initial_mask.mask.thread_set_mask()
    }
}

/// A program with its arguments and environment, in the form that execve expects. It is prepared before the fork, so
/// that nothing has to be allocated after the fork.
struct ExecArguments {
    arguments: Vec<CString>,
    variables: Vec<CString>,
}

impl ExecArguments {
    fn of(command: &Command) -> io::Result<Self> {
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => drop(variables.insert(name.to_owned(), value.to_owned())),
                None => drop(variables.remove(name)),
            }
        }
        let assignment = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec())
        };
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(Self {
            arguments: words.map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?,
            variables: variables.into_iter().map(assignment).collect::<Result<_, _>>()?,
        })
    }
}

/// A list of C strings as an array of pointers with a null pointer at its end, as the kernel expects it.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Starts a program in a process that is created in a control group (`clone3`). Returns after the exec. The inner error
/// says why no process can be created in the group.
///
/// When a process moves into a group, it waits 5 to 15 ms for a synchronisation of all processors. A process that is
/// created in the group does not wait. See <https://man7.org/linux/man-pages/man2/clone.2.html>.
///
/// # Errors
/// Why the program cannot be executed.
fn spawn_in_group(
    group: &File,
    setup: &ChildSetup,
    exec_arguments: &ExecArguments,
) -> io::Result<Result<Pid, Errno>> {
    /// `CLONE_INTO_CGROUP`. The `libc` crate has it as a number of 32 bits.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    /// The number of fields of `clone_args`, 64 bits each. The constants below are the indices of the fields in use.
    const FIELDS: usize = 11;
    const FLAGS: usize = 0;
    const EXIT_SIGNAL: usize = 4;
    const GROUP: usize = 10;
    let exec_error = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let (arguments, variables) = (pointers(&exec_arguments.arguments), pointers(&exec_arguments.variables));
    let mut args = [0_u64; FIELDS];
    // With `CLONE_VFORK`, this thread continues only when the new process has executed the program or has ended.
    args[FLAGS] = INTO_CGROUP | u64::from(libc::CLONE_VFORK.unsigned_abs());
    args[EXIT_SIGNAL] = u64::from((Signal::SIGCHLD as i32).unsigned_abs());
    args[GROUP] = u64::from(group.as_raw_fd().unsigned_abs());
    // SAFETY: `args` is a whole `clone_args`. The new process has a copy of this process's memory, as after a fork, and
    // one thread. The C library does not know of the new process, which does not matter to async-signal-safe functions.
    let new_pid = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    match new_pid {
        -1 => return Ok(Err(Errno::last())),
        0 => {
            let errno = become_program(setup, &arguments, &variables);
            let _ = write(&exec_error, &u64::from((errno as i32).unsigned_abs()).to_ne_bytes());
            // SAFETY: `_exit` ends this process and runs no exit handlers of it.
            unsafe { libc::_exit(exit::NOT_FOUND.into()) }
        }
        _ => {}
    }
    // Process ids fit into 32 bits.
    let pid = Pid::from_raw(new_pid as i32);
    match exec_error.read() {
        Err(Errno::EAGAIN) => Ok(Ok(pid)),
        Err(errno) => Err(errno.into()),
        Ok(errno) => {
            let _ = waitpid(pid, None);
            Err(io::Error::from_raw_os_error(errno as i32))
        }
    }
}

/// Runs in the new process, which has one thread and must not allocate. Returns the reason if the exec failed;
/// otherwise it does not return.
fn become_program(
    setup: &ChildSetup,
    arguments: &[*const libc::c_char],
    variables: &[*const libc::c_char],
) -> Errno {
    let this_process = Pid::from_raw(0);
    if let Err(errno) = setpgid(this_process, this_process).and_then(|()| setup.apply()) {
        return errno;
    }
    // SAFETY: the default action of a signal runs no code. Both lists and their strings live in the caller, and the
    // lists end with a null pointer; the first of `arguments` is the program's name.
    unsafe {
        // The Rust runtime ignores SIGPIPE, and the program would inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execvpe(arguments[0], arguments.as_ptr(), variables.as_ptr());
    }
    Errno::last()
}

/// Starts a program in a new process. The process moves into its control group, if it has one and the move is possible.
fn spawn_then_move(
    mut command: Command,
    setup: ChildSetup,
    entrance: Option<Entrance<'_>>,
) -> io::Result<Spawned> {
    let move_error_reader = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let move_error_writer = move_error_reader.as_fd().try_clone_to_owned()?;
    let processes = entrance.map(|entrance| entrance.processes.try_clone()).transpose()?;
    let prepare = move || -> io::Result<()> {
        // The process moves into the control group before anything else. If the move fails, `move_error_reader` gets
        // the error, and CMD starts outside of the group.
        if let Some(Err(errno)) = processes.as_ref().map(|processes| write(processes, b"0")) {
            write(&move_error_writer, &u64::from((errno as i32).unsigned_abs()).to_ne_bytes())?;
        }
        Ok(setup.apply()?)
    };
    command.process_group(0);
    // SAFETY: `prepare` calls only async-signal-safe functions: see `ChildSetup`; so is write.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    let move_error = match move_error_reader.read() {
        Ok(errno) => Some(Errno::from_raw(errno as i32)),
        // Nothing was written: the process is in the control group, or needs none.
        Err(Errno::EAGAIN) => None,
        Err(errno) => return Err(errno.into()),
    };
    Ok(Spawned { pid: Pid::from_raw(child.id() as i32), move_error })
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::cgroup::Group;

    /// Starts a CMD that prints in which control groups it is. Returns its output; and, if it is not in the wanted
    /// group, why.
    fn start(group: &Group, entrance: Entrance<'_>) -> (String, Option<Errno>) {
        let output_file = std::env::temp_dir().join(format!("lh-unit-{}-spawn", std::process::id()));
        let script =
            format!("cat /proc/self/cgroup >{}; exit $(($$ == $(ps -o pgid= $$)))", output_file.display());
        let parameters = Spawn {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: Vec::new(),
            pass_url: false,
            initial_mask: InitialMask { mask: SigSet::empty() },
            locks: Vec::new(),
            stdout: None,
            terminal: None,
            entrance: Some(entrance),
        };
        let Spawned { pid, move_error } = spawn(parameters).unwrap();
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 1)), "it leads its process group");
        while group.is_populated() {
            std::thread::yield_now();
        }
        let groups = std::fs::read_to_string(&output_file).unwrap();
        std::fs::remove_file(output_file).unwrap();
        (groups, move_error)
    }

    #[test]
    fn cmd_starts_in_its_group_or_moves_there_or_runs_outside() {
        let this_process = Group::of_this_process()
            .expect("this test needs cgroup v2, mounted and writable: run it as root");
        let name = format!("lh-unit-{}-born", std::process::id());
        let path = this_process.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        let group = Group::open(&path).unwrap();
        let none = File::open("/").unwrap();
        let (dir, processes) = (group.dir(), group.entrance().unwrap());
        for (entrance, is_there) in [
            (Entrance { group: dir, processes: &none }, true),
            (Entrance { group: &none, processes: &processes }, true),
            (Entrance { group: &none, processes: &none }, false),
        ] {
            let (groups, move_error) = start(&group, entrance);
            assert_eq!(groups.lines().any(|line| line.ends_with(&format!("/{name}"))), is_there, "{groups}");
            assert_eq!(move_error.is_none(), is_there, "{move_error:?}");
        }
        group.remove().unwrap();
    }
}
