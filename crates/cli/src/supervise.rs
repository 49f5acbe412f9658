//! Supervises CMD until it has ended: passes signals on, ends CMD when the lock is lost, and stops this process when
//! CMD is stopped at the terminal (Ctrl-Z).

use std::{pin::Pin, task::Poll, time::Duration};

use leasehold::{Error, Keeper, Loss, Name};
use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    child::{Change, Child},
    enforce::{Action, Enforcer},
    event_loop::{EventLoop, now},
    exit,
    front::FrontLink,
    holds::Holds,
    plan::Run,
    terminal::TakeBack,
    text::print_message,
    tree,
};

/// The interval at which a loop checks whether all descendants of CMD have ended, after the lock was lost or the front
/// was killed. The end of a child wakes the loop earlier, unless another process traces this child.
const TREE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long the loop waits for the end of CMD's processes after it has sent KILL. The kernel may need some time to end
/// a process that has much memory or waits for a disk.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The interval at which the loop checks whether the processes that CMD left behind have moved out of CMD's control
/// group.
const LEFTOVERS_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// How long the loop waits until the processes that CMD left behind have moved.
const MOVE_LIMIT: Duration = Duration::from_millis(500);

/// How long after the start of CMD a deferred keeper starts: before the first check of the hold is due.
const KEEPER_START_DELAY: Duration = Duration::from_millis(200);

/// The result of the supervision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// CMD ended, and the lock was not lost before that. `left_processes`: processes that CMD started still run.
    Held { code: u8, left_processes: bool },
    /// CMD was ended because the hold of `name` was lost or about to be lost.
    Lost { name: Name, loss: Loss, code: u8 },
}

/// The future of a request to the engine that confirms the hold.
type Confirmation<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// Supervises one CMD under its holds.
pub(crate) struct Supervisor<'a> {
    guard: Holds<'a>,
    event_loop: &'a EventLoop,
    child: Child,
    grace: Duration,
    /// The first name of the run.
    plan_name: Name,
    enforcer: Enforcer,
    /// Completes when the hold is lost.
    lost: Pin<Box<dyn Future<Output = (Name, Loss)> + 'a>>,
    /// The loss that the guards have reported, and the name that was lost. `None`: no loss was reported yet.
    loss: Option<(Name, Loss)>,
    /// A request that confirms the hold. It is made when this process gets TERM, because an operator may have broken
    /// the hold.
    confirmation: Option<Confirmation<'a>>,
    /// Whether the TERM that this process got was passed on to CMD. If the confirmation then finds a loss, CMD gets no
    /// second TERM.
    term_sent: bool,
    /// The engine and the name, for messages.
    lock: String,
    /// Whether the front was killed. Then no process waits for CMD's result.
    front_is_gone: bool,
    /// Whether the message about processes that cannot be ended was printed.
    survivors_reported: bool,
    /// The deferred keeper, and the time at which it starts. If CMD still runs then, the keeper watches over the hold.
    deferred_keeper: Option<(Keeper, Duration)>,
    /// The front, which is told of a loss when CMD has to stop because of it.
    front_link: Option<&'a FrontLink>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        plan: &Run,
        lock: String,
        guard: Holds<'a>,
        event_loop: &'a EventLoop,
        child: Child,
    ) -> Self {
        Self {
            guard,
            event_loop,
            child,
            grace: plan.grace,
            plan_name: plan.name.clone(),
            enforcer: Enforcer::new(plan.grace),
            lost: Box::pin(guard.lost()),
            loss: None,
            confirmation: None,
            term_sent: false,
            lock,
            front_is_gone: false,
            survivors_reported: false,
            deferred_keeper: None,
            front_link: None,
        }
    }

    /// Tells the front when CMD has to stop because of a loss.
    pub(crate) const fn with_loss_report(mut self, front_link: &'a FrontLink) -> Self {
        self.front_link = Some(front_link);
        self
    }

    /// Sets the deferred keeper. It starts when CMD has run for [`KEEPER_START_DELAY`].
    pub(crate) fn with_deferred_keeper(mut self, keeper: Option<Keeper>) -> Self {
        self.deferred_keeper = keeper.map(|keeper| (keeper, now() + KEEPER_START_DELAY));
        self
    }

    /// Runs until CMD has ended. If the lock is lost, runs until CMD's whole process tree has ended.
    pub(crate) fn wait_for_end(mut self) -> Result<End, Errno> {
        let end = self.watch();
        if end.is_err() {
            // If the loop fails, CMD is killed, because it must not run without a process that watches over the lock.
            let _ = self.child.send_to_all(Signal::SIGKILL);
        }
        end
    }

    /// The loop. It handles losses, deadlines, signals and changes of CMD, until CMD has ended.
    fn watch(&mut self) -> Result<End, Errno> {
        loop {
            self.poll_for_loss();
            self.enforce();
            match self.child.change()? {
                Some(Change::Ended(code)) => return self.handle_end(code),
                Some(Change::Stopped(by)) => self.handle_stop(by)?,
                None => {}
            }
            let next =
                [self.enforcer.time_to_next_action(now()), self.start_keeper()].into_iter().flatten().min();
            if let Some(signal) = self.event_loop.wait(next)? {
                self.handle_signal(signal);
            }
            if self.front_is_gone {
                return self.end_without_front();
            }
        }
    }

    /// Starts the deferred keeper if its time has come. Returns the time until it is to be started, or until the next
    /// attempt. `None`: no keeper is to be started any more.
    fn start_keeper(&mut self) -> Option<Duration> {
        let (keeper, start_at) = self.deferred_keeper.as_mut()?;
        let now = now();
        if now < *start_at {
            return Some(*start_at - now);
        }
        // If the system cannot start a thread now, a later call tries again.
        *start_at = now + KEEPER_START_DELAY;
        if keeper.begin().is_ok() {
            self.deferred_keeper = None;
        }
        self.deferred_keeper.is_some().then_some(KEEPER_START_DELAY)
    }

    /// Ends CMD and its descendants after the front was killed. The hold is kept and renewed until they have ended, so
    /// that no other claim is granted while one of them runs.
    fn end_without_front(&mut self) -> Result<End, Errno> {
        loop {
            self.signal_all(Signal::SIGKILL);
            let _ = self.child.change();
            if !self.child.is_any_running() {
                return Ok(End::Held { code: exit::code_of_signal(Signal::SIGKILL), left_processes: false });
            }
            self.event_loop.wait(Some(TREE_CHECK_INTERVAL))?;
        }
    }

    /// Polls for a loss, and for the answer to the confirmation.
    fn poll_for_loss(&mut self) {
        if self.loss.is_none()
            && let Poll::Ready(loss) = self.event_loop.poll(self.lost.as_mut())
        {
            self.loss = Some(loss);
        }
        if let Some(confirmation) = &mut self.confirmation
            && self.event_loop.poll(confirmation.as_mut()).is_ready()
        {
            // If the confirmation finds a loss, it reports the loss to the guard first. So a poll sees the loss now,
            // even if it did not see it above.
            if self.loss.is_none()
                && let Poll::Ready(loss) = self.event_loop.poll(self.lost.as_mut())
            {
                self.loss = Some(loss);
            }
            self.confirmation = None;
            self.term_sent = self.term_sent && self.loss.is_some();
        }
    }

    /// Sends CMD the signal that is due.
    fn enforce(&mut self) {
        let loss = self.loss.as_ref().map(|(_, loss)| *loss);
        let action = self.enforcer.step(now(), self.guard.stop(self.grace), loss);
        // Before the signal, and without waiting for anything: the front runs `--on-lost` beside the end of CMD.
        if let (Some(_), Some(loss), Some(front_link)) =
            (&action, self.enforcer.stopped_by(), self.front_link)
        {
            front_link.report_loss(&self.lost_name(), loss);
        }
        match action {
            Some(Action::Terminate) => {
                if !std::mem::take(&mut self.term_sent) {
                    self.signal_all(Signal::SIGTERM);
                }
                // A process that is stopped handles TERM only when it continues.
                self.signal_all(Signal::SIGCONT);
            }
            Some(Action::Kill) => self.signal_all(Signal::SIGKILL),
            None => {}
        }
    }

    /// Sends a signal to all processes of CMD. If some of them cannot be signalled, prints which.
    fn signal_all(&mut self, signal: Signal) {
        if self.child.send_to_all(signal).is_err() {
            self.report_survivors();
        }
    }

    /// Prints which of CMD's processes still run and cannot be ended, because they have become another user, as
    /// processes of `sudo` do. Prints this at most once.
    fn report_survivors(&mut self) {
        let survivors = tree::survivors();
        if survivors.is_empty() || std::mem::replace(&mut self.survivors_reported, true) {
            return;
        }
        let (lock, descriptions) = (&self.lock, tree::describe(&survivors));
        let what =
            if self.front_is_gone { "leasehold was killed, and the lock stays held:" } else { "lost, but" };
        print_message(&format!(
            "{lock}: {what} this user may not end processes of another user that run under it: {descriptions}: \
             end them as root"
        ));
    }

    /// Handles a signal that this process got.
    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => {}
            Signal::SIGCONT => self.resume(),
            Signal::SIGKILL => self.front_is_gone = true,
            Signal::SIGTERM => {
                let _ = self.child.send(signal);
                // An operator who breaks the hold sends TERM too. So the engine is asked whether the hold is broken.
                if self.confirmation.is_none() && self.enforcer.stopped_by().is_none() {
                    let guard = self.guard;
                    self.confirmation = Some(Box::pin(guard.confirm()));
                    self.term_sent = true;
                }
            }
            signal => {
                let _ = self.child.send(signal);
            }
        }
    }

    /// Handles a CMD that was stopped (as by Ctrl-Z). If this process has a terminal, stops this process too, so that
    /// the shell shows its prompt again.
    fn handle_stop(&mut self, by: Signal) -> Result<(), Errno> {
        let wants_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        match self.child.take_terminal() {
            None => return Ok(()),
            Some(TakeBack::WasOurs) if wants_terminal => {
                self.resume();
                return Ok(());
            }
            // The terminal stopped only CMD's process group. But the shell waits until the whole process group of the
            // front is stopped.
            Some(TakeBack::FromCmd) => self.event_loop.signals().stop_with_group()?,
            Some(TakeBack::WasOurs | TakeBack::OtherGroup) => self.event_loop.signals().stop()?,
        }
        // Either this process was stopped and has been continued by SIGCONT; this signal is pending here and will be
        // passed on to CMD. Or the kernel did not stop this process, because no other process could have continued it.
        // In the second case CMD must not stay stopped either, if the terminal stopped it.
        if by == Signal::SIGTSTP {
            self.resume();
        }
        Ok(())
    }

    /// Continues CMD. If the lock was lost while CMD was stopped, does nothing, because the next round of the loop ends
    /// CMD.
    fn resume(&self) {
        // `guard.check()` would be wrong here: if the hold is in doubt but not lost, CMD would stay stopped.
        let is_valid = self.guard.stop(self.grace).is_none_or(|stop| !stop.kill.is_zero());
        if is_valid || self.enforcer.stopped_by().is_some() {
            self.child.resume();
        }
    }

    /// Handles the end of CMD. After a loss, waits until CMD's whole process tree has ended.
    fn handle_end(&mut self, code: u8) -> Result<End, Errno> {
        self.poll_for_loss();
        if self.loss.is_some() {
            // CMD ended before it got the signal that is due. The processes that CMD left behind get this signal now.
            self.enforce();
        }
        let Some(loss) = self.enforcer.stopped_by() else {
            let left_processes = self.child.is_any_running();
            self.move_leftovers_out()?;
            return Ok(End::Held { code, left_processes });
        };
        while let Some(kill_at) = self.enforcer.kill_at().filter(|_| self.child.is_any_running()) {
            let time_left = kill_at.saturating_sub(now());
            if let Some(signal) = self.event_loop.wait(Some(time_left.min(TREE_CHECK_INTERVAL)))? {
                self.handle_signal(signal);
            }
            self.enforce();
        }
        self.wait_for_killed()?;
        Ok(End::Lost { name: self.lost_name(), loss, code })
    }

    /// The name whose hold is lost: the reported one, else the one whose hold ends first.
    fn lost_name(&self) -> Name {
        let with_end = self.guard.iter().filter_map(|guard| Some((guard.deadline()?, guard.name())));
        let ends_first = with_end.min_by_key(|(deadline, _)| *deadline).map(|(_, name)| name.clone());
        let reported = self.loss.as_ref().map(|(name, _)| name.clone());
        reported.or(ends_first).unwrap_or_else(|| self.plan_name.clone())
    }

    /// Moves the processes that CMD left behind out of CMD's control group. Then marks the group, so that no run ends
    /// processes that are still in it.
    fn move_leftovers_out(&mut self) -> Result<(), Errno> {
        let give_up_at = now() + MOVE_LIMIT;
        while !self.child.move_leftovers_out() && now() < give_up_at {
            if let Some(signal) = self.event_loop.wait(Some(LEFTOVERS_CHECK_INTERVAL))? {
                self.handle_signal(signal);
            }
        }
        self.child.spare();
        Ok(())
    }

    /// Waits until the killed processes have ended. Prints those that cannot be ended.
    fn wait_for_killed(&mut self) -> Result<(), Errno> {
        let give_up_at = now() + KILL_LIMIT;
        while self.child.is_any_running() {
            self.signal_all(Signal::SIGKILL);
            if self.survivors_reported {
                return Ok(());
            }
            if now() >= give_up_at {
                print_message(&format!(
                    "{}: lost, but processes of CMD do not end: do they wait for a disk?",
                    self.lock
                ));
                return Ok(());
            }
            self.event_loop.wait(Some(TREE_CHECK_INTERVAL))?;
        }
        Ok(())
    }
}
