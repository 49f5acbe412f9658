//! Breaking a hold: a kernel lock cannot be taken away, so its holder is asked to stop.

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
};

use super::{
    card::{BROKEN, State},
    claims::lock,
    engine::FileEngine,
    layout::card_at,
    line::Placed,
    locks::{Key, LockFile},
    open::Missing,
    state::StateFile,
    table::{Table, is_alive},
};
use crate::{Broken, EngineError, Fault, Name};

/// How many asked holders are remembered, to tell "it went" from "it was never there".
const REMEMBERED: usize = 64;

impl FileEngine {
    /// Asks the holder once, and says how that stands: [`Fault::Retry`] while it still holds.
    pub(super) fn break_now(&self, name: &Name, token: u64) -> Result<Broken, EngineError> {
        let key = Key::new(&self.dir, name);
        let Some(lock) = LockFile::open(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.went(name, token));
        };
        let Some(state) = self.states.get(&self.dir, &key, Missing::Leave)? else {
            return Ok(self.went(name, token));
        };
        let latch = lock.latch()?;
        let table = Table::load(self, &key, &lock, &state, latch)?;
        let held = |placed: &&Placed| placed.card.state == State::Holding && placed.card.carries(token);
        let Some(placed) = table.zero.iter().chain(&table.cards).find(held) else {
            return Ok(self.went(name, token));
        };
        if !is_alive(&lock, placed)? {
            return Ok(self.went(name, token));
        }
        self.ask_to_stop(name, token, &state, placed)
    }

    fn ask_to_stop(
        &self,
        name: &Name,
        token: u64,
        state: &StateFile,
        placed: &Placed,
    ) -> Result<Broken, EngineError> {
        let (card, pid) = (&placed.card, placed.card.process.pid);
        let target = card.process.target().filter(|_| card.stops_on_term && card.process.is_running());
        let Some(target) = target else {
            return Err(denied(format!(
                "pid {pid} ({}) holds it and does not stop on request: a kernel lock ends only with its holder; end that process",
                card.owner
            )));
        };
        if !card.is_broken() {
            let at = card_at(placed.slot) + BROKEN;
            state.write(&card.token.to_le_bytes(), at)?;
            if let Err(errno) = kill(target, Signal::SIGTERM) {
                state.write(&[0; 8], at)?;
                if errno == Errno::EPERM {
                    return Err(denied(format!("pid {pid} ({}) holds it and is another user's", card.owner)));
                }
            }
        }
        let mut asked = lock(&self.asked);
        if !asked.iter().any(|(other, number)| other == name && *number == token) {
            if asked.len() >= REMEMBERED {
                asked.remove(0);
            }
            asked.push((name.clone(), token));
        }
        Err(EngineError::new(
            Fault::Retry,
            format!("pid {pid} ({}) was asked to stop and still holds it", card.owner),
        ))
    }

    /// The token is not held: because we asked, or never was.
    fn went(&self, name: &Name, token: u64) -> Broken {
        let mut asked = lock(&self.asked);
        let before = asked.len();
        asked.retain(|(other, number)| other != name || *number != token);
        if asked.len() < before { Broken::Done } else { Broken::NotHeld }
    }
}

fn denied(message: String) -> EngineError {
    EngineError::new(Fault::Denied, message)
}
