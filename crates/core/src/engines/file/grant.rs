//! Granting a claim: mints its tokens, sets the mark that shows the holder to be alive, writes the record of the hold.

use super::{
    claims::ClaimState,
    engine::FileEngine,
    kernel::locks::{LockFile, Mark},
    table::Table,
    table::layout::{
        ENDED_AT, Header, RECORD_SIZE, RECORD_ZERO_AT, TOKENS_AT, Tokens, ended_to_byte, record_offset,
    },
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::tokens::mint,
    table::wait_order::StoredRecord,
};
use crate::{Claim, EngineError, Grant, Instant, Mode, Previous, Token};

impl FileEngine {
    /// Grants a claim under the latch. The caller must have the flock for `claim.mode`, and must have read the table
    /// after it took the flock.
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
            .find(|stored| Some(stored.record.ticket) == ticket)
            .map(|stored| stored.slot);
        if claim.mode == Mode::Exclusive {
            table.clear_dead_holders()?;
            let record_zero = table.record_zero.take();
            let granted = self.grant_exclusive(
                claim,
                table.lock_file,
                table.state_file,
                &mut table.header,
                record_zero.as_ref(),
                now,
            )?;
            if let Some(slot) = own_slot {
                table.clear_record(slot)?;
            }
            table.reset_if_empty()?;
            return Ok(granted);
        }
        self.clear_dead_record_zero(table)?;
        let (slot, ticket) = match (own_slot, ticket) {
            (Some(slot), Some(ticket)) => (slot, ticket),
            _ => {
                let (slot, ticket) = table.assign_slot()?;
                table.lock_file.set_mark(Mark::Ticket(ticket))?;
                (slot, ticket)
            }
        };
        let previous = self.previous(&table.header, None);
        let token = self.mint(claim, table.state_file, &mut table.header)?;
        table.state_file.write(&table.header.tokens.to_bytes(), TOKENS_AT as u64)?;
        let tokens = claim.tokens.max(1);
        let record = Record {
            ticket,
            token: token.number,
            tokens,
            ..self.new_record(claim, RecordState::Holding, now)
        };
        table.write_record(slot, record)?;
        Ok(state_and_grant(slot, token, tokens, previous))
    }

    /// Grants an exclusive hold; the caller must have the exclusive flock. `record_zero` is the record of the previous
    /// holder, if its hold was never released. Needs no latch.
    pub(super) fn grant_exclusive(
        &self,
        claim: &Claim,
        lock_file: &LockFile,
        state_file: &StateFile,
        header: &mut Header,
        record_zero: Option<&StoredRecord>,
        now: Instant,
    ) -> Result<(ClaimState, Grant), EngineError> {
        let previous = self.previous(header, record_zero);
        let token = self.mint(claim, state_file, header)?;
        // The mark is set before the record is written: a record without its mark is the record of a dead holder.
        lock_file.set_mark(Mark::Hold(token.number))?;
        let tokens = claim.tokens.max(1);
        let record =
            Record { token: token.number, tokens, ..self.new_record(claim, RecordState::Holding, now) };
        // The tokens, how the last hold ended, and record 0 follow each other: one write.
        let mut bytes = [0; RECORD_ZERO_AT + RECORD_SIZE - TOKENS_AT];
        bytes[..Tokens::SIZE].copy_from_slice(&header.tokens.to_bytes());
        bytes[ENDED_AT - TOKENS_AT] = ended_to_byte(header.ended);
        bytes[RECORD_ZERO_AT - TOKENS_AT..].copy_from_slice(&record.to_bytes());
        state_file.write(&bytes, TOKENS_AT as u64)?;
        Ok(state_and_grant(0, token, tokens, previous))
    }

    /// Mints the tokens of a grant; returns the first.
    fn mint(&self, claim: &Claim, state_file: &StateFile, header: &mut Header) -> Result<Token, EngineError> {
        let sync = |tokens: &Tokens| state_file.sync_tokens(&self.dir, tokens);
        let number = mint(&mut header.tokens, claim.tokens, self.boot_id, sync)?;
        Ok(Token { lineage: header.lineage, number })
    }

    /// Clears record 0. The caller must have a shared flock, which proves that the exclusive holder of this record is
    /// gone.
    fn clear_dead_record_zero(&self, table: &mut Table<'_>) -> Result<(), EngineError> {
        let Some(record_zero) = table.record_zero.take() else { return Ok(()) };
        if record_zero.record.state == RecordState::Holding {
            table.set_ended(ended_by_death(&record_zero.record))?;
        }
        table.state_file.write(&[RecordState::Empty as u8], record_offset(0))
    }

    /// How the hold before this grant ended. The caller must call this before `mint`, which writes the id of this boot
    /// into the counter.
    fn previous(&self, header: &Header, record_zero: Option<&StoredRecord>) -> Previous {
        match record_zero {
            Some(record_zero) if record_zero.record.state == RecordState::Holding => {
                ended_by_death(&record_zero.record)
            }
            // After a reboot the disk may have an older page than the last one that the holder wrote.
            _ if header.tokens.boot_id != self.boot_id
                && header.tokens.current > 0
                && header.ended == Previous::Clean =>
            {
                Previous::Unknown
            }
            _ => header.ended,
        }
    }
}

/// How a hold ended whose process died.
fn ended_by_death(record: &Record) -> Previous {
    if record.is_broken() { Previous::Broken } else { Previous::Lapsed }
}

/// The state of a granted claim, and the grant to report.
fn state_and_grant(slot: u32, token: Token, tokens: u32, previous: Previous) -> (ClaimState, Grant) {
    (ClaimState::Holding { slot, token, tokens, previous }, Grant { token, tokens, ttl: None, previous })
}
