//! The terminal while the view has it: without echo, on the alternate screen. It is given back on every way out.

use std::{
    fs::File,
    io::{self, Write},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor, event, queue,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen},
    },
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The screen. Dropping it gives the terminal back.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<File>>,
    loan: Loan,
}

impl Screen {
    /// Takes the terminal `tty`.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn take(tty: File) -> io::Result<Self> {
        let backend = CrosstermBackend::new(tty.try_clone()?);
        let loan = Loan::take(tty)?;
        let mut screen = Self { terminal: Terminal::new(backend)?, loan };
        screen.clear()?;
        Ok(screen)
    }

    /// Gives the terminal back, for instance while the command is stopped.
    pub(crate) fn give_back(&self) {
        self.loan.0.give_back();
    }

    /// Takes the terminal after [`give_back`](Self::give_back).
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn take_again(&mut self) -> io::Result<()> {
        self.loan.0.take()?;
        self.clear()
    }

    /// Forgets what is on the screen, so that the next painting paints all of it.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // Not by `Terminal::clear`: it asks the terminal for the place of the cursor, and the answer is among the keys.
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }

    pub(crate) const fn terminal(&mut self) -> &mut Terminal<CrosstermBackend<File>> {
        &mut self.terminal
    }
}

/// The terminal, as long as it is on loan.
struct Loan(Arc<Lent>);

/// What is needed to give the terminal back.
struct Lent {
    tty: File,
    /// The settings before.
    settings: Termios,
    /// Whether the view has the terminal now.
    is_ours: AtomicBool,
}

impl Loan {
    fn take(tty: File) -> io::Result<Self> {
        let settings = tcgetattr(&tty)?;
        let loan = Self(Arc::new(Lent { tty, settings, is_ours: AtomicBool::new(false) }));
        give_back_before_panic(Arc::clone(&loan.0));
        loan.0.take()?;
        Ok(loan)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Lent {
    fn take(&self) -> io::Result<()> {
        self.is_ours.store(true, Ordering::SeqCst);
        let mut settings = self.settings.clone();
        settings.make_raw();
        tcsetattr(&self.tty, OptionalActions::Now, &settings)?;
        let mut tty = &self.tty;
        queue!(tty, EnterAlternateScreen, event::EnableBracketedPaste, cursor::Hide)?;
        tty.flush()
    }

    fn give_back(&self) {
        if !self.is_ours.swap(false, Ordering::SeqCst) {
            return;
        }
        // If the terminal is gone, there is nothing to restore.
        let mut tty = &self.tty;
        let _ = queue!(tty, event::DisableBracketedPaste, cursor::Show, LeaveAlternateScreen);
        let _ = tty.flush();
        let _ = tcsetattr(&self.tty, OptionalActions::Now, &self.settings);
    }
}

/// Gives the terminal back before a panic of this thread is reported: on the alternate screen the report would be lost.
/// Panics of other threads do not end the view.
fn give_back_before_panic(lent: Arc<Lent>) {
    let (thread, report) = (thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == thread {
            lent.give_back();
        }
        report(info);
    }));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use nix::pty::{Winsize, openpty};

    use super::*;

    /// A terminal: the end of the user and the end of the program.
    fn terminal() -> (File, File) {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        (File::from(pty.master), File::from(pty.slave))
    }

    fn has_echo(tty: &File) -> bool {
        tcgetattr(tty).unwrap().local_modes.contains(rustix::termios::LocalModes::ECHO)
    }

    /// What the program wrote, after it has closed the terminal.
    fn written(mut user: File) -> String {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        // The end is an error of the terminal.
        while let Ok(count @ 1..) = user.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn the_terminal_is_given_back_on_every_way_out() {
        let (user, tty) = terminal();
        let loan = Loan::take(tty.try_clone().unwrap()).unwrap();
        assert!(!has_echo(&tty));
        loan.0.give_back();
        assert!(has_echo(&tty), "while the command is stopped");
        loan.0.take().unwrap();
        assert!(!has_echo(&tty));
        drop(loan);
        assert!(has_echo(&tty));
        let loan = Loan::take(tty.try_clone().unwrap()).unwrap();
        let of_other_thread = thread::spawn(|| panic!("of another thread")).join();
        assert!(of_other_thread.is_err() && !has_echo(&tty), "the view goes on");
        let panicked = panic::catch_unwind(|| panic!("of this thread"));
        assert!(panicked.is_err() && has_echo(&tty), "before the loan is dropped");
        // The hook keeps the terminal open.
        drop((loan, panic::take_hook(), tty));
        let written = written(user);
        assert_eq!(written.matches("\u{1b}[?1049h").count(), 3, "{written:?}");
        assert_eq!(written.matches("\u{1b}[?1049l").count(), 3, "once for each: {written:?}");
        assert!(written.ends_with("\u{1b}[?1049l"), "{written:?}");
    }
}
