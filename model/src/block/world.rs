//! One world of the model of blocks: the server, and what each process knows.

use std::fmt;

use smallvec::SmallVec;

use super::runs::{Bug, Rules};

/// The number of processes.
pub(crate) const PROCESSES: usize = 2;
/// The owner of the other program's key.
pub(crate) const OTHER_PROGRAM: u8 = PROCESSES as u8;

/// A key of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The owner of the key: a process, or [`OTHER_PROGRAM`]. Each owner uses one key again and again, so the owner
    /// also stands for the path of the key.
    pub(crate) owner: u8,
    /// The revision at which the key was created.
    pub(crate) number: u8,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Idle,
    /// The key of the process was created, and the answer is in flight. The answer says whose key was ahead of it at
    /// the creation.
    Answered {
        number: u8,
        ahead: Option<u8>,
    },
    /// The process waits for the deletion of the key of `blocker`; it read the queue at revision `read_at`.
    Waiting {
        number: u8,
        blocker: u8,
        read_at: u8,
    },
    /// The process holds, and its newest guard has the token of this step.
    Holding {
        number: u8,
        step: u8,
    },
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) stage: Stage,
    /// The end of the lease of the process on the server. It is also the deadline of its hold.
    pub(crate) lease_end: u8,
    /// The owner of the key that its watch is on.
    pub(crate) watched: Option<u8>,
    /// The revision of the newest deletion that the watch of the process has reported.
    pub(crate) newest_report: u8,
    /// The revisions of the deletions whose reports are in flight to the process.
    pub(crate) reports: SmallVec<[u8; 4]>,
}

/// A world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    pub(crate) revision: u8,
    pub(crate) queue: SmallVec<[Key; 4]>,
    pub(crate) processes: [Process; PROCESSES],
    /// How often something other than the owner of a key has deleted the key.
    pub(crate) deletions: u8,
    /// The newest token that a task got.
    pub(crate) newest_token: u8,
    /// All tokens that tasks got, as bits.
    pub(crate) tokens: u128,
    /// Whether a token was not larger than an earlier token.
    pub(crate) went_back: bool,
    /// Whether a token was used twice.
    pub(crate) repeated: bool,
    /// How many tasks of the process that holds now got the name, one after the other, while the other program waited.
    pub(crate) passed_over: u8,
    /// How often the name went to another owner.
    pub(crate) turns: u8,
    /// The owner that got the name last.
    pub(crate) last_owner: Option<u8>,
}

impl World {
    pub(crate) fn new() -> Self {
        let process = Process {
            stage: Stage::Idle,
            lease_end: 0,
            watched: None,
            newest_report: 0,
            reports: SmallVec::new(),
        };
        Self {
            now: 0,
            revision: 0,
            queue: SmallVec::new(),
            processes: [process.clone(), process],
            deletions: 0,
            newest_token: 0,
            tokens: 0,
            went_back: false,
            repeated: false,
            passed_over: 0,
            turns: 0,
            last_owner: None,
        }
    }

    /// The key of an owner.
    pub(crate) fn key_of(&self, owner: u8) -> Option<Key> {
        self.queue.iter().copied().find(|key| key.owner == owner)
    }

    /// The key directly ahead of this owner's key.
    pub(crate) fn ahead_of(&self, owner: u8) -> Option<Key> {
        let at = self.queue.iter().position(|key| key.owner == owner)?;
        at.checked_sub(1).map(|before| self.queue[before])
    }

    /// Creates the key of an owner at the end of the queue.
    pub(crate) fn create_key(&mut self, owner: u8) -> Key {
        self.revision += 1;
        let key = Key { owner, number: self.revision };
        self.queue.push(key);
        key
    }

    /// Deletes the key of an owner, and sends a report to the processes that watch the key. Does nothing if there is no
    /// key.
    pub(crate) fn delete_key(&mut self, owner: u8) {
        let before = self.queue.len();
        self.queue.retain(|key| key.owner != owner);
        if self.queue.len() == before {
            return;
        }
        self.revision += 1;
        for process in &mut self.processes {
            if process.watched == Some(owner) {
                process.reports.push(self.revision);
            }
        }
    }

    /// Whether a process holds and can rely on its hold, because its lease has not ended.
    pub(crate) fn is_valid(&self, process: usize) -> bool {
        let Process { stage, lease_end, .. } = self.processes[process];
        matches!(stage, Stage::Holding { .. }) && self.now < lease_end
    }

    /// How many owners hold, as far as they know.
    pub(crate) fn valid_holders(&self) -> usize {
        let other_program = self.queue.first().is_some_and(|key| key.owner == OTHER_PROGRAM);
        usize::from(other_program) + (0..PROCESSES).filter(|&process| self.is_valid(process)).count()
    }

    /// Whether a process waits although its key is the first one in the queue and no report is in flight to it.
    pub(crate) fn waits_in_vain(&self) -> bool {
        self.processes.iter().enumerate().any(|(owner, process)| {
            matches!(process.stage, Stage::Waiting { number, .. } if self.queue.first() == Some(&Key { owner: owner as u8, number }))
                && process.reports.is_empty()
        })
    }

    /// Gives a task of this process the token of this step.
    pub(crate) fn hand_token(&mut self, rules: &Rules, process: usize, number: u8, step: u8) {
        self.processes[process].stage = Stage::Holding { number, step };
        let token = if rules.has(Bug::NumberAlone) { number + step } else { number * rules.block + step };
        self.went_back |= token <= self.newest_token;
        self.repeated |= self.tokens & (1 << token) != 0;
        self.newest_token = self.newest_token.max(token);
        self.tokens |= 1 << token;
        let other_waits = self.queue.iter().skip(1).any(|key| key.owner == OTHER_PROGRAM);
        let earlier = if self.last_owner == Some(process as u8) { self.passed_over } else { 0 };
        self.passed_over = if other_waits { earlier + 1 } else { 0 };
        self.takes_turn(process as u8);
    }

    /// The name goes to this owner.
    pub(crate) fn takes_turn(&mut self, owner: u8) {
        if self.last_owner != Some(owner) {
            self.turns = self.turns.saturating_add(1).min(3);
            self.last_owner = Some(owner);
        }
    }
}

/// One line for the story of a broken property.
impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "now {} revision {} queue", self.now, self.revision)?;
        self.queue.iter().try_for_each(|key| write!(f, " {}@{}", key.owner, key.number))?;
        for process in &self.processes {
            let Process { stage, lease_end, watched, reports, .. } = process;
            write!(f, "; {stage:?} lease {lease_end} watches {watched:?} {reports:?}")?;
        }
        Ok(())
    }
}
