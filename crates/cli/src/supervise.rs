//! Seeing CMD through: signals go on to it, a loss of the lock ends it, a stop at the terminal stops both.

use std::{pin::Pin, task::Poll, time::Duration};

use leasehold::{Error, Guard, Keeper, Loss};
use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    child::{Change, Child},
    enforce::{Enforcer, Order},
    exit,
    plan::Run,
    terminal::Taken,
    text::say,
    tree,
    waiter::{Waiter, now},
};

/// How often the end of CMD's tree is looked for, once CMD itself is gone and the lock is lost: the end of a child tells of it,
/// but not of a child that another process traces.
const LOOK_FOR_TREE: Duration = Duration::from_millis(20);
/// How long, after it was killed: the kernel needs some time for processes that have much memory, or wait for a disk.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often what CMD left behind is looked at while it moves out of CMD's control group, and how long.
const LOOK_FOR_HEIRS: Duration = Duration::from_millis(1);
const MOVE_WITHIN: Duration = Duration::from_millis(500);

/// When a keeper begins that was not needed until then: before the hold is to be looked at for the first time.
const KEEPER_BEGINS: Duration = Duration::from_millis(200);

/// How it came out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// CMD ended, and the lock was not lost until then. `left_processes`: processes that it started still run.
    Kept { code: u8, left_processes: bool },
    /// CMD was ended because the lock was lost, or was about to be.
    Lost { loss: Loss, code: u8 },
}

/// A question to the engine whether the hold still stands.
type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// One CMD under one guard.
pub(crate) struct Supervisor<'a> {
    guard: &'a Guard,
    waiter: &'a Waiter,
    child: Child,
    grace: Duration,
    enforcer: Enforcer,
    lost: Pin<Box<dyn Future<Output = Loss> + 'a>>,
    loss: Option<Loss>,
    /// A question whether TERM was somebody's wish to break the hold.
    asked: Option<Asked<'a>>,
    /// TERM that came in was passed on, so that a loss found by asking needs no second one.
    told: bool,
    /// The engine and the name, for messages.
    lock: String,
    /// The front was killed: nobody waits for CMD any more.
    is_alone: bool,
    /// Whether it was said that some of CMD's processes cannot be ended.
    complained: bool,
    /// What watches over the hold if CMD runs for long, and when that begins.
    late: Option<(Keeper, Duration)>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(plan: &Run, lock: String, guard: &'a Guard, waiter: &'a Waiter, child: Child) -> Self {
        Self {
            guard,
            waiter,
            child,
            grace: plan.grace,
            enforcer: Enforcer::new(plan.grace),
            lost: Box::pin(guard.lost()),
            loss: None,
            asked: None,
            told: false,
            lock,
            is_alone: false,
            complained: false,
            late: None,
        }
    }

    /// The keeper begins when CMD has run for a moment.
    pub(crate) fn with_late(mut self, keeper: Option<Keeper>) -> Self {
        self.late = keeper.map(|keeper| (keeper, now() + KEEPER_BEGINS));
        self
    }

    /// Until CMD has ended, and after a loss until its whole tree has, too.
    pub(crate) fn see_through(mut self) -> Result<End, Errno> {
        let end = self.watch();
        if end.is_err() {
            // CMD must not go on without anybody who watches over the lock.
            let _ = self.child.send_to_all(Signal::SIGKILL);
        }
        end
    }

    fn watch(&mut self) -> Result<End, Errno> {
        loop {
            self.listen();
            self.enforce();
            match self.child.change()? {
                Some(Change::Ended(code)) => return self.end(code),
                Some(Change::Stopped(by)) => self.stopped(by)?,
                None => {}
            }
            let next = [self.enforcer.sleep(now()), self.begin_keeper()].into_iter().flatten().min();
            if let Some(signal) = self.waiter.wait(next)? {
                self.signal(signal);
            }
            if self.is_alone {
                return self.abandoned();
            }
        }
    }

    /// Begins the late keeper when its time has come; else how long that is.
    fn begin_keeper(&mut self) -> Option<Duration> {
        let (keeper, at) = self.late.as_mut()?;
        let now = now();
        if now < *at {
            return Some(*at - now);
        }
        // A system that has no thread left now may have one a little later.
        *at = now + KEEPER_BEGINS;
        if keeper.begin().is_ok() {
            self.late = None;
        }
        self.late.is_some().then_some(KEEPER_BEGINS)
    }

    /// The front was killed. The hold stands, and is renewed, until CMD's tree is gone: then its release lets the next one in.
    fn abandoned(&mut self) -> Result<End, Errno> {
        loop {
            self.end_by(Signal::SIGKILL);
            let _ = self.child.change();
            if !self.child.left_any() {
                return Ok(End::Kept { code: exit::by_signal(Signal::SIGKILL), left_processes: false });
            }
            self.waiter.wait(Some(LOOK_FOR_TREE))?;
        }
    }

    /// Hears of a loss, and of the answer to a question.
    fn listen(&mut self) {
        if self.loss.is_none()
            && let Poll::Ready(loss) = self.waiter.poll(self.lost.as_mut())
        {
            self.loss = Some(loss);
        }
        if let Some(asked) = &mut self.asked
            && self.waiter.poll(asked.as_mut()).is_ready()
        {
            // A loss that it found was told to the guard first: it is heard now, or was.
            if self.loss.is_none()
                && let Poll::Ready(loss) = self.waiter.poll(self.lost.as_mut())
            {
                self.loss = Some(loss);
            }
            self.asked = None;
            self.told = self.told && self.loss.is_some();
        }
    }

    fn enforce(&mut self) {
        match self.enforcer.step(now(), self.guard.stop(self.grace), self.loss) {
            Some(Order::Terminate) => {
                if !std::mem::take(&mut self.told) {
                    self.end_by(Signal::SIGTERM);
                }
                // A stopped process hears nothing.
                self.end_by(Signal::SIGCONT);
            }
            Some(Order::Kill) => self.end_by(Signal::SIGKILL),
            None => {}
        }
    }

    fn end_by(&mut self, signal: Signal) {
        if self.child.send_to_all(signal).is_err() {
            self.complain();
        }
    }

    /// Some of CMD's processes became another user, as those of `sudo` do, and go on without the lock.
    fn complain(&mut self) {
        let survivors = tree::survivors();
        if survivors.is_empty() || std::mem::replace(&mut self.complained, true) {
            return;
        }
        let (lock, named) = (&self.lock, tree::named(&survivors));
        let what =
            if self.is_alone { "leasehold was killed, and the lock is kept, for" } else { "lost, but" };
        say(&format!(
            "{lock}: {what} this user may not end what runs under it as another user: process {named}: end it as root"
        ));
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => {}
            Signal::SIGCONT => self.resume(),
            Signal::SIGKILL => self.is_alone = true,
            Signal::SIGTERM => {
                let _ = self.child.send(signal);
                if self.asked.is_none() && self.enforcer.stopped_by().is_none() {
                    let guard = self.guard;
                    self.asked = Some(Box::pin(guard.confirm()));
                    self.told = true;
                }
            }
            signal => {
                let _ = self.child.send(signal);
            }
        }
    }

    /// CMD was stopped. On a terminal this process stops with it, so that the shell gets its prompt back.
    fn stopped(&mut self, by: Signal) -> Result<(), Errno> {
        let wants_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        match self.child.take_terminal() {
            None => return Ok(()),
            Some(Taken::WasOurs) if wants_terminal => {
                self.resume();
                return Ok(());
            }
            // The terminal told CMD's group alone. The shell waits for all of ours.
            Some(Taken::FromCmd) => self.waiter.signals().stop_with_group()?,
            Some(Taken::WasOurs | Taken::Nothing) => self.waiter.signals().stop()?,
        }
        // Continued by SIGCONT, which is in line and will be passed on; or never stopped, because nobody could have
        // continued us: then a stop from the terminal must not last either.
        if by == Signal::SIGTSTP {
            self.resume();
        }
        Ok(())
    }

    /// Lets CMD go on, unless the lock was lost while it was stopped: the next round ends it then.
    fn resume(&self) {
        // Not `check()`: what is in doubt now and stands would stay stopped.
        let lasts = self.guard.stop(self.grace).is_none_or(|stop| !stop.kill.is_zero());
        if lasts || self.enforcer.stopped_by().is_some() {
            self.child.resume();
        }
    }

    fn end(&mut self, code: u8) -> Result<End, Errno> {
        self.listen();
        if self.loss.is_some() {
            // It ended before it could be told. What it left running is told now.
            self.enforce();
        }
        let Some(loss) = self.enforcer.stopped_by() else {
            let left_processes = self.child.left_any();
            self.dismiss()?;
            return Ok(End::Kept { code, left_processes });
        };
        while let Some(kill_at) = self.enforcer.kill_at().filter(|_| self.child.left_any()) {
            let left = kill_at.saturating_sub(now());
            if let Some(signal) = self.waiter.wait(Some(left.min(LOOK_FOR_TREE)))? {
                self.signal(signal);
            }
            self.enforce();
        }
        self.mark_dead()?;
        Ok(End::Lost { loss, code })
    }

    /// Lets go what CMD left behind.
    fn dismiss(&mut self) -> Result<(), Errno> {
        let end = now() + MOVE_WITHIN;
        while !self.child.dismiss() && now() < end {
            if let Some(signal) = self.waiter.wait(Some(LOOK_FOR_HEIRS))? {
                self.signal(signal);
            }
        }
        self.child.spare();
        Ok(())
    }

    /// Waits until what was killed is gone, and says so of what cannot be ended.
    fn mark_dead(&mut self) -> Result<(), Errno> {
        let end = now() + END_WITHIN;
        while self.child.left_any() {
            self.end_by(Signal::SIGKILL);
            if self.complained {
                return Ok(());
            }
            if now() >= end {
                say(&format!(
                    "{}: lost, but what runs under it does not end: does it wait for a disk?",
                    self.lock
                ));
                return Ok(());
            }
            self.waiter.wait(Some(LOOK_FOR_TREE))?;
        }
        Ok(())
    }
}
