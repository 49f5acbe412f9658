//! The actions that may happen next in a world of the model of blocks.

use stateright::{Model, Property};

use super::{
    runs::{Bug, Rules},
    world::{Key, OTHER_PROGRAM, PROCESSES, Stage, World},
};

/// I1: no two holds are valid at once, as far as their owners know.
pub(crate) const EXCLUSION: &str = "I1: no two holds are valid at once";
/// I4.
pub(crate) const TOKENS: &str = "I4: tokens grow in the order of the grants";
pub(crate) const NO_TOKEN_TWICE: &str = "I4: no token is used twice";
pub(crate) const ONE_BLOCK: &str = "I8: another program waits for one block at most";
pub(crate) const NO_WAIT_IN_VAIN: &str = "I7: no process waits in vain";
/// The event that every run without a broken property must see.
pub(crate) const TAKES_TURNS: &str = "the name goes from one owner to another and on";

/// One action. Its field is the index of the process that acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The server creates the key of a process and reads the queue.
    CreateKey(usize),
    /// A process receives the server's answer to the creation of its key.
    ReadAnswer(usize),
    /// A process receives the report that the key that it watches was deleted.
    ReadReport(usize),
    /// A process hands its hold over to its next task.
    HandOver(usize),
    /// The server extends the lease of a process.
    Renew(usize),
    /// A process releases its hold.
    Release(usize),
    /// A process learns that its key is gone.
    LearnLoss(usize),
    /// The other program creates its key.
    OtherCreates,
    /// The other program deletes its key.
    OtherDeletes,
    /// Something other than the process, for instance an operator, deletes the key of the process.
    DeleteKey(usize),
    /// Time passes, and leases end.
    Tick,
}

/// All worlds that are reachable under some rules.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
}

impl Protocol {
    /// Makes the process a holder, because its key was the first one in the queue. If its lease has ended meanwhile,
    /// the process becomes idle instead.
    fn grant(&self, world: &mut World, process: usize, number: u8) {
        if world.now < world.processes[process].lease_end {
            world.hand_token(&self.rules, process, number, 0);
        } else {
            world.processes[process].stage = Stage::Idle;
        }
    }

    /// Lets a process read the queue. The process becomes a holder, waits for the key ahead of its own, or becomes idle
    /// because its key is gone.
    fn read_queue(&self, world: &mut World, process: usize, number: u8) {
        let owner = process as u8;
        if world.key_of(owner).is_none_or(|key| key.number != number) {
            world.processes[process].stage = Stage::Idle;
            return;
        }
        match world.ahead_of(owner) {
            None => self.grant(world, process, number),
            Some(ahead) => {
                let read_at = world.revision;
                self.wait_for(world, process, number, ahead.owner, read_at);
            }
        }
    }

    /// Makes the process wait for the key of `blocker`, which was in the queue at revision `read_at`. If the process
    /// watches this key already, it keeps the watch; otherwise it begins a watch now. If the key may have been deleted
    /// after `read_at`, the process reads the queue once more.
    fn wait_for(&self, world: &mut World, process: usize, number: u8, blocker: u8, read_at: u8) {
        let revision = world.revision;
        let it = &mut world.processes[process];
        it.stage = Stage::Waiting { number, blocker, read_at };
        let missed = if it.watched == Some(blocker) {
            it.newest_report > read_at && !self.rules.has(Bug::ReportBeforeTakeOverLost)
        } else {
            it.watched = Some(blocker);
            it.reports.clear();
            it.newest_report = 0;
            revision > read_at && !self.rules.has(Bug::ChangeBeforeWatchLost)
        };
        if missed {
            self.read_queue(world, process, number);
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let rules = &self.rules;
        let may_create = world.revision < rules.max_revision;
        for process in 0..PROCESSES {
            let state = &world.processes[process];
            let key = world.key_of(process as u8);
            if !state.reports.is_empty() {
                actions.push(Action::ReadReport(process));
            }
            if key.is_some() && world.now < state.lease_end && state.lease_end < world.now + rules.ttl {
                actions.push(Action::Renew(process));
            }
            if key.is_some() && world.deletions < rules.deletions {
                actions.push(Action::DeleteKey(process));
            }
            match state.stage {
                Stage::Idle if key.is_none() && may_create => actions.push(Action::CreateKey(process)),
                Stage::Idle => {}
                Stage::Answered { .. } => actions.push(Action::ReadAnswer(process)),
                Stage::Waiting { number, .. } if key.is_none_or(|key| key.number != number) => {
                    actions.push(Action::LearnLoss(process));
                }
                Stage::Waiting { .. } => {}
                Stage::Holding { number, step } => {
                    let is_in_block = step + 1 < rules.block || rules.has(Bug::EndlessBlock);
                    let is_fresh = world.is_valid(process) || rules.has(Bug::HandOverAfterLease);
                    if is_in_block && is_fresh && step < rules.block + 1 {
                        actions.push(Action::HandOver(process));
                    }
                    actions.push(Action::Release(process));
                    if key.is_none_or(|key| key.number != number) {
                        actions.push(Action::LearnLoss(process));
                    }
                }
            }
        }
        if rules.other_program && may_create && world.key_of(OTHER_PROGRAM).is_none() {
            actions.push(Action::OtherCreates);
        }
        if world.queue.first().is_some_and(|key| key.owner == OTHER_PROGRAM) {
            actions.push(Action::OtherDeletes);
        }
        if world.now < rules.horizon {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::CreateKey(process) => {
                world.processes[process].lease_end = world.now + self.rules.ttl;
                let Key { number, .. } = world.create_key(process as u8);
                let ahead = world.ahead_of(process as u8).map(|key| key.owner);
                world.processes[process].stage = Stage::Answered { number, ahead };
            }
            Action::ReadAnswer(process) => match world.processes[process].stage {
                Stage::Answered { number, ahead: None } => self.grant(&mut world, process, number),
                Stage::Answered { number, ahead: Some(ahead) } => {
                    self.wait_for(&mut world, process, number, ahead, number);
                }
                _ => return None,
            },
            Action::ReadReport(process) => {
                let revision = world.processes[process].reports.remove(0);
                world.processes[process].newest_report = revision;
                if let Stage::Waiting { number, read_at, .. } = world.processes[process].stage
                    && (revision > read_at || self.rules.has(Bug::EarlierReportCounts))
                {
                    if self.rules.has(Bug::EarlierReportCounts) {
                        self.grant(&mut world, process, number);
                    } else {
                        self.read_queue(&mut world, process, number);
                    }
                }
            }
            Action::HandOver(process) => {
                let Stage::Holding { number, step } = world.processes[process].stage else { return None };
                world.hand_token(&self.rules, process, number, step + 1);
            }
            Action::Renew(process) => {
                world.processes[process].lease_end = world.now + self.rules.ttl;
                if self.rules.has(Bug::StepsBeginAgain)
                    && let Stage::Holding { number, .. } = world.processes[process].stage
                {
                    world.hand_token(&self.rules, process, number, 0);
                }
            }
            Action::Release(process) => {
                let Stage::Holding { number, .. } = world.processes[process].stage else { return None };
                if world.key_of(process as u8).is_some_and(|key| key.number == number) {
                    world.delete_key(process as u8);
                }
                world.processes[process].stage = Stage::Idle;
            }
            Action::LearnLoss(process) => world.processes[process].stage = Stage::Idle,
            Action::OtherCreates => drop(world.create_key(OTHER_PROGRAM)),
            Action::OtherDeletes => {
                world.takes_turn(OTHER_PROGRAM);
                world.delete_key(OTHER_PROGRAM);
            }
            Action::DeleteKey(process) => {
                world.deletions += 1;
                world.delete_key(process as u8);
            }
            Action::Tick => {
                world.now += 1;
                for process in 0..PROCESSES {
                    if world.processes[process].lease_end <= world.now {
                        world.delete_key(process as u8);
                    }
                }
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        vec![
            always(EXCLUSION, |model, world: &World| model.rules.deletions > 0 || world.valid_holders() <= 1),
            always(TOKENS, |model, world: &World| model.rules.deletions > 0 || !world.went_back),
            always(NO_TOKEN_TWICE, |_, world: &World| !world.repeated),
            always(ONE_BLOCK, |model, world: &World| world.passed_over <= model.rules.block),
            always(NO_WAIT_IN_VAIN, |_, world: &World| !world.waits_in_vain()),
            Property::<Self>::sometimes(TAKES_TURNS, |_, world: &World| world.turns > 2),
        ]
    }
}
