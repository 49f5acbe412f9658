//! The loop of the view: keys, answers of the engine and signals come in, and the screen is painted.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    pin::Pin,
    task::Poll,
    time::Duration,
};

use leasehold::{Guarantee, Locks, engine::Watched};
use nix::{sys::signal::Signal, unistd::getpgrp};

use super::{
    breaking::Breaking,
    draw::{Colours, draw},
    keys::Keys,
    screen::Screen,
    state::{Action, Setting, State},
};
use crate::{
    args,
    cmd::{break_record::is_wanted_by_environment, obey, run::wait_failure, show::GuaranteeResult},
    event_loop::{EventLoop, now},
    exit::{self, Failure},
    looker::{Look, Looker},
    signals::{Signals, interrupts_wait},
    terminal::Terminal,
};

/// The shortest time between two paintings: more than ten a second help nobody, and slow a line down.
const PAINT_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two paintings: the age of the data changes.
const LONGEST_PAINT_PAUSE: Duration = Duration::from_secs(1);
/// How often the command stops again because it was continued in the background.
const MAX_STOPS: usize = 100;

/// Refuses to start without a terminal that can show the view.
pub(crate) fn terminal() -> Result<File, Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let what = if is_dumb { "its TERM is not set, or is `dumb`" } else { "there is none" };
        let message = format!(
            "`leasehold top` needs a terminal: {what}: `leasehold watch` prints a line for each change"
        );
        return Err(Failure::new(exit::USAGE, message));
    }
    let tty = io::stdout().as_fd().try_clone_to_owned();
    tty.map(File::from).map_err(|error| Failure::system("cannot use the terminal", error))
}

/// Runs the view until the user quits. `is_default`: no URL was given.
pub(crate) fn view(
    args: &args::Top,
    locks: &Locks,
    is_default: bool,
    tty: File,
    signals: Signals,
) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::system("cannot use the terminal", error);
    let peer = tty.as_fd().try_clone_to_owned().map_err(failed)?;
    let event_loop = EventLoop::new(signals, Some(peer)).map_err(wait_failure)?;
    let mut looker = Looker::new(locks.clone(), Watched::Prefix(args.prefix.clone()), args.every);
    // An error of the first look is a message on the terminal as it was.
    let first = loop {
        if let Some(look) = looker.poll(&event_loop) {
            break look;
        }
        obey(&event_loop, event_loop.wait(looker.idle()).map_err(wait_failure)?)?;
    };
    let setting = Setting {
        engine: locks.profile().engine,
        is_default,
        prefix: args.prefix.clone(),
        pause: args.every,
        // A break of this view has no reason, and so no record.
        is_readonly: args.readonly || is_wanted_by_environment(),
    };
    let mut state = State::new(setting, first.answer?, first.at);
    state.answered_after(now().saturating_sub(first.at));
    let of_guarantee = locks.clone();
    let screen = Screen::take(tty).map_err(failed)?;
    let mut view = View {
        locks,
        event_loop: &event_loop,
        looker,
        state,
        guarantee: Some(Box::pin(async move { of_guarantee.guarantee().await })),
        breaking: None,
        keys: Keys::read().map_err(failed)?,
        screen,
        colours: match std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            true => Colours::Unused,
            false => Colours::Used,
        },
    };
    view.run(failed)
}

type AskGuarantee = Pin<Box<dyn Future<Output = Result<Guarantee, leasehold::Error>>>>;

struct View<'a> {
    locks: &'a Locks,
    event_loop: &'a EventLoop,
    looker: Looker,
    state: State,
    /// The request for the guarantee, until it is answered.
    guarantee: Option<AskGuarantee>,
    breaking: Option<Breaking>,
    keys: Keys,
    screen: Screen,
    colours: Colours,
}

/// Whether the view goes on.
enum Next {
    Continue,
    End(u8),
}

impl View<'_> {
    fn run(&mut self, failed: impl Fn(io::Error) -> Failure) -> Result<u8, Failure> {
        let mut painted_at = None;
        let mut is_changed = true;
        loop {
            while let Some(key) = self.keys.poll(self.event_loop).map_err(&failed)? {
                is_changed = true;
                let action = self.state.key(key);
                if let Next::End(code) = self.act(action).map_err(&failed)? {
                    return Ok(code);
                }
            }
            is_changed |= self.take_answers();
            let since_paint = painted_at.map_or(Duration::MAX, |at| now().saturating_sub(at));
            let mut pause = LONGEST_PAINT_PAUSE.saturating_sub(since_paint);
            if is_changed {
                pause = PAINT_PAUSE.saturating_sub(since_paint);
            }
            if pause.is_zero() {
                let (state, at, colours) = (&mut self.state, now(), self.colours);
                self.screen.terminal().draw(|frame| draw(frame, state, at, colours)).map_err(&failed)?;
                (painted_at, is_changed, pause) = (Some(at), false, LONGEST_PAINT_PAUSE);
            }
            let idle = [self.looker.idle(), self.breaking.as_ref().and_then(Breaking::idle)];
            let limit = idle.into_iter().flatten().fold(pause, Duration::min);
            let signal = self.event_loop.wait(Some(limit)).map_err(wait_failure)?;
            if let Next::End(code) = self.obey(signal).map_err(&failed)? {
                return Ok(code);
            }
            is_changed |= signal == Some(Signal::SIGCONT);
        }
    }

    /// Takes the answers of the engine that have come. Returns whether there were any.
    fn take_answers(&mut self) -> bool {
        let mut is_changed = false;
        if let Some(Look { at, answer }) = self.looker.poll(self.event_loop) {
            self.state.answered_after(now().saturating_sub(at));
            self.state.look(answer, at);
            is_changed = true;
        }
        self.state.is_pushed = self.looker.is_pushed();
        if let Some(request) = &mut self.guarantee
            && let Poll::Ready(answer) = self.event_loop.poll(request.as_mut())
        {
            self.state.guarantee = GuaranteeResult(answer.map_err(|error| error.to_string()));
            self.guarantee = None;
            is_changed = true;
        }
        if let Some(breaking) = &mut self.breaking
            && let Some(result) = breaking.poll(self.event_loop)
        {
            self.state.broken(&breaking.name, breaking.token, result);
            self.breaking = None;
            self.looker.hurry();
            is_changed = true;
        }
        is_changed
    }

    fn act(&mut self, action: Action) -> io::Result<Next> {
        match action {
            Action::Nothing => {}
            Action::Quit => return Ok(Next::End(exit::DONE)),
            Action::Interrupt => return Ok(Next::End(exit::code_of_signal(Signal::SIGINT))),
            Action::Suspend => self.suspend()?,
            Action::Repaint => self.screen.clear()?,
            Action::Break { .. } if self.breaking.is_some() => {
                self.state.message =
                    Some("another hold is being broken: try again when that is done".to_owned());
            }
            Action::Break { name, token } => self.breaking = Some(Breaking::start(self.locks, name, token)),
        }
        Ok(Next::Continue)
    }

    fn obey(&mut self, signal: Option<Signal>) -> io::Result<Next> {
        match signal {
            // The terminal is gone.
            Some(Signal::SIGKILL) => return Ok(Next::End(exit::code_of_signal(Signal::SIGHUP))),
            Some(Signal::SIGTSTP) => self.suspend()?,
            Some(signal) if interrupts_wait(signal) => return Ok(Next::End(exit::code_of_signal(signal))),
            _ => {}
        }
        Ok(Next::Continue)
    }

    /// Stops the command, as Ctrl-Z does, with the terminal as it was before. Returns in the foreground.
    fn suspend(&mut self) -> io::Result<()> {
        self.screen.give_back();
        let terminal = Terminal::find(getpgrp());
        for _ in 0..MAX_STOPS {
            self.event_loop.signals().stop()?;
            // `bg` continues the command where it may not use the terminal.
            if terminal.as_ref().is_none_or(Terminal::is_in_foreground) {
                break;
            }
        }
        self.screen.take_again()
    }
}
