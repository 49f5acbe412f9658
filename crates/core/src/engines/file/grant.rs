//! Granting: mints the token, sets the mark that shows the holder to be alive, writes the record of the hold.

use super::{
    claims::ClaimState,
    engine::FileEngine,
    kernel::locks::{LockFile, Mark},
    table::Table,
    table::layout::{ENDED, Head, RECORD, RECORD_ZERO, TOKENS, Tokens, ended_to_byte, record_at},
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::tokens::mint,
    table::wait_order::IndexedRecord,
};
use crate::{Claim, EngineError, Grant, Instant, Mode, Previous, Token};

impl FileEngine {
    /// Grants under the latch; the caller has the flock of `claim.mode` and has read the table since it took that.
    pub(super) fn grant(
        &self,
        table: &mut Table<'_>,
        claim: &Claim,
        ticket: Option<u64>,
    ) -> Result<(ClaimState, Grant), EngineError> {
        let now = self.env.clock.now();
        let own_slot = table
            .records
            .iter()
            .find(|indexed| Some(indexed.record.ticket) == ticket)
            .map(|indexed| indexed.slot);
        if claim.mode == Mode::Exclusive {
            table.clear_dead_holders()?;
            let record_zero = table.record_zero.take();
            let granted =
                self.seize(claim, table.lock, table.state, &mut table.head, record_zero.as_ref(), now)?;
            if let Some(slot) = own_slot {
                table.clear(slot)?;
            }
            table.mark_if_empty()?;
            return Ok(granted);
        }
        self.clear_dead_record_zero(table)?;
        let (slot, ticket) = match (own_slot, ticket) {
            (Some(slot), Some(ticket)) => (slot, ticket),
            _ => {
                let (slot, ticket) = table.free_slot()?;
                table.lock.mark(Mark::Ticket(ticket))?;
                (slot, ticket)
            }
        };
        let previous = self.previous(&table.head, None);
        let token = self.mint(claim, table.state, &mut table.head)?;
        table.state.write(&table.head.tokens.to_bytes(), TOKENS as u64)?;
        let tokens = claim.tokens.max(1);
        let record =
            Record { ticket, token: token.number, tokens, ..self.record(claim, RecordState::Holding, now) };
        table.put(slot, record)?;
        Ok(held(slot, token, tokens, previous))
    }

    /// Grants an exclusive hold; the caller has the exclusive flock. `record_zero` is the record of the previous
    /// holder, if its hold was never released. Needs no latch.
    pub(super) fn seize(
        &self,
        claim: &Claim,
        lock: &LockFile,
        state: &StateFile,
        head: &mut Head,
        record_zero: Option<&IndexedRecord>,
        now: Instant,
    ) -> Result<(ClaimState, Grant), EngineError> {
        let previous = self.previous(head, record_zero);
        let token = self.mint(claim, state, head)?;
        // Before the record, so that the record is not taken for the record of a dead holder.
        lock.mark(Mark::Hold(token.number))?;
        let tokens = claim.tokens.max(1);
        let record = Record { token: token.number, tokens, ..self.record(claim, RecordState::Holding, now) };
        // The tokens, how the last hold ended, and record 0 follow each other: one write.
        let mut bytes = [0; RECORD_ZERO + RECORD - TOKENS];
        bytes[..Tokens::SIZE].copy_from_slice(&head.tokens.to_bytes());
        bytes[ENDED - TOKENS] = ended_to_byte(head.ended);
        bytes[RECORD_ZERO - TOKENS..].copy_from_slice(&record.to_bytes());
        state.write(&bytes, TOKENS as u64)?;
        Ok(held(0, token, tokens, previous))
    }

    fn mint(&self, claim: &Claim, state: &StateFile, head: &mut Head) -> Result<Token, EngineError> {
        let sync = |tokens: &Tokens| state.sync_tokens(&self.dir, tokens);
        let number = mint(&mut head.tokens, claim.tokens, self.boot, sync)?;
        Ok(Token { lineage: head.lineage, number })
    }

    /// A shared flock proves that an exclusive holder whose record is still there is gone.
    fn clear_dead_record_zero(&self, table: &mut Table<'_>) -> Result<(), EngineError> {
        let Some(record_zero) = table.record_zero.take() else { return Ok(()) };
        if record_zero.record.state == RecordState::Holding {
            table.set_ended(ended_by_death(&record_zero.record))?;
        }
        table.state.write(&[RecordState::Empty as u8], record_at(0))
    }

    /// How the hold before this grant ended. Called before the counter is moved to this boot.
    fn previous(&self, head: &Head, record_zero: Option<&IndexedRecord>) -> Previous {
        match record_zero {
            Some(record_zero) if record_zero.record.state == RecordState::Holding => {
                ended_by_death(&record_zero.record)
            }
            // After a reboot the disk may have an older page than the last one that the holder wrote.
            _ if head.tokens.boot != self.boot
                && head.tokens.current > 0
                && head.ended == Previous::Clean =>
            {
                Previous::Unknown
            }
            _ => head.ended,
        }
    }
}

/// How a hold ended whose holder died.
fn ended_by_death(record: &Record) -> Previous {
    if record.is_broken() { Previous::Broken } else { Previous::Lapsed }
}

/// The state of a granted claim, and the grant to report.
fn held(slot: u32, token: Token, tokens: u32, previous: Previous) -> (ClaimState, Grant) {
    (ClaimState::Holding { slot, token, tokens, previous }, Grant { token, tokens, ttl: None, previous })
}
