//! A program on a pseudo-terminal, and the screen that its user sees.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
};

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::Signal,
        termios::{LocalFlags, tcgetattr},
    },
};
use vt100::{Parser, Screen};

use crate::{
    start::{LEASEHOLD, program_in},
    tools::until,
};

/// The size of the terminal: rows and columns.
const SIZE: (u16, u16) = (24, 80);

/// As [`program`](crate::start::program), with its standard input as its controlling terminal.
pub(crate) fn program_on_terminal(name: impl AsRef<OsStr>) -> Command {
    let mut command = program_in(&["setsid", "--ctty"], name);
    command.env("TERM", "xterm");
    command
}

/// A program on a terminal of 80 x 24. It is killed at the end of the test.
pub(crate) struct Pty {
    child: Child,
    /// The end of the user, to write keys to.
    user: File,
    /// The end of the program.
    tty: OwnedFd,
    screen: Arc<Mutex<Parser>>,
}

impl Pty {
    /// Starts `leasehold ARGS` on a new terminal, which is its controlling terminal.
    pub(crate) fn leasehold(args: &[&str], url: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = program_on_terminal(LEASEHOLD);
        command.args(args).env("LEASEHOLD_URL", url).envs(variables.iter().copied());
        Self::start(command)
    }

    /// Starts a program on a new terminal.
    pub(crate) fn start(mut command: Command) -> Self {
        let (ws_row, ws_col) = SIZE;
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let [stdin, stdout, stderr] = [(); 3].map(|()| pty.slave.try_clone().unwrap());
        let child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        let user = File::from(pty.master);
        let screen = Arc::new(Mutex::new(Parser::default()));
        let (mut output, shown) = (user.try_clone().unwrap(), Arc::clone(&screen));
        // It ends with the test program: `tty` keeps the terminal open.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { child, user, tty: pty.slave, screen }
    }

    /// Presses keys: characters, or what a terminal sends for other keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).unwrap();
    }

    /// What the screen shows now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(self.screen.lock().unwrap().screen())
    }

    pub(crate) fn text(&self) -> String {
        self.look(Screen::contents)
    }

    /// Waits until the screen shows this.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Screen) -> bool) {
        let patience = std::panic::AssertUnwindSafe(|| until(what, || self.look(&is_so)));
        if let Err(panic) = std::panic::catch_unwind(patience) {
            eprintln!("the screen while waiting for {what}:\n{}", self.text());
            std::panic::resume_unwind(panic);
        }
    }

    pub(crate) fn until_text(&self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    /// Waits until the first row of the table that has this text has the mark of the selection.
    pub(crate) fn until_selected(&self, text: &str) {
        let is_selected = |line: &str| line.starts_with("> ") && line.contains(text);
        self.until(&format!("{text} selected"), |screen| screen.contents().lines().any(is_selected));
    }

    /// The lines of the table that have this text.
    pub(crate) fn rows(&self, text: &str) -> Vec<String> {
        let text_of_screen = self.text();
        text_of_screen.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        leasehold_testkit::signal(self.child.id(), signal);
    }

    /// Whether the terminal prints what is typed, as it does under a shell.
    pub(crate) fn has_echo(&self) -> bool {
        tcgetattr(&self.tty).unwrap().local_flags.contains(LocalFlags::ECHO)
    }

    /// Waits for the end of the program and checks that the terminal is as it was. Returns the exit code.
    pub(crate) fn end(mut self) -> i32 {
        let mut status = None;
        until("its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // Its last output may not have been read yet.
        self.until("the terminal as it was", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
        assert!(self.has_echo(), "the terminal prints what is typed");
        status.unwrap().code().unwrap()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
