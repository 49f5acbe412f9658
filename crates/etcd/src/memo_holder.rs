//! Who holds a name, as a read of its memo sees it.
//!
//! With `layout=election` the value of the leader's key is what the leader has published, so the leader may also be one
//! of another program.

use std::time::Duration;

use leasehold_core::{
    ClaimId, EngineError, MAX_MEMO_BYTES, MAX_MEMO_KEEP, Memo, MemoKind, MemoVersion, TokenBlocks,
};

use crate::{
    client::Client, conn::Conn, keys::Dir, memo_record::MemoRecord, memos::foreign, recheck::is_claim_record,
    record::Record, wire::KeyValue,
};

/// Who holds a name, as a read of its memo sees it.
#[derive(Debug, PartialEq)]
pub(crate) enum Holder<'a> {
    /// The claim that wrote the memo, unbroken.
    Writer,
    /// With `layout=election`: another program, which published the value of this key.
    Foreign(&'a KeyValue),
    /// Nobody, or a claim of leasehold that has written no memo.
    Other,
}

impl<'a> Holder<'a> {
    /// The holder by the key that holds the name if any does, and by the memo with its key.
    pub(crate) fn of(
        dir: &Dir,
        holding: Option<&'a KeyValue>,
        memo: Option<(&KeyValue, &MemoRecord)>,
        token_blocks: TokenBlocks,
    ) -> Self {
        match (holding, memo) {
            (Some(leader), _) if dir.is_election() => of_election(leader, memo, token_blocks),
            (Some(kv), Some((_, record))) if is_claim_record(&kv.value, record.version.id) => Self::Writer,
            _ => Self::Other,
        }
    }
}

/// With `layout=election`: whether the oldest key of the directory is the writer of the memo, or a leader of another
/// program. A publication changes both keys at one revision: a key with another revision was changed by somebody else.
fn of_election<'a>(
    leader: &'a KeyValue,
    memo: Option<(&KeyValue, &MemoRecord)>,
    token_blocks: TokenBlocks,
) -> Holder<'a> {
    let has_record = Record::read(&leader.value).is_some();
    let is_writer = memo.is_some_and(|(kv, record)| {
        let is_unbroken = if record.kind == MemoKind::ELECTION {
            kv.mod_revision == leader.mod_revision
        } else {
            !has_record
        };
        is_unbroken && token_blocks.number_of(record.token.number) == Some(leader.create_revision)
    });
    if is_writer {
        Holder::Writer
    } else if leader.value.is_empty() || has_record {
        // A candidate that has not published yet, or a broken hold.
        Holder::Other
    } else {
        Holder::Foreign(leader)
    }
}

impl Client {
    /// With `layout=election`: what a leader of another program has published, as a memo of that leader.
    pub(crate) fn memo_of_foreign_leader(&self, conn: &Conn, leader: &KeyValue) -> Result<Memo, EngineError> {
        let token = self.held(conn, leader.create_revision, 1, Duration::ZERO)?.token;
        if leader.value.len() > MAX_MEMO_BYTES {
            return Err(foreign(&leader.key));
        }
        // The key of a leader is created and changed at a revision of its own. Ids of claims are random: none is so
        // small.
        let id = ClaimId(u128::from(leader.create_revision.unsigned_abs()).to_be_bytes());
        let version = MemoVersion { id, number: leader.mod_revision.unsigned_abs() };
        let (kind, bytes) = (MemoKind::ELECTION, leader.value.clone());
        Ok(Memo { kind, bytes, print: None, version, token, left: MAX_MEMO_KEEP, is_held: true })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Lineage, Token};

    use super::*;

    #[test]
    fn a_leader_is_the_writer_of_the_memo_only_by_the_revisions_of_both_keys() {
        let kv = |create_revision, mod_revision, value: &str| KeyValue {
            create_revision,
            mod_revision,
            value: value.as_bytes().to_vec(),
            ..KeyValue::default()
        };
        let record = MemoRecord {
            kind: MemoKind::ELECTION,
            version: MemoVersion { id: ClaimId([7; 16]), number: 1 },
            token: Token { lineage: Lineage::new(1), number: 5 },
            print: None,
            written_at: Duration::ZERO,
            life: Duration::ZERO,
            bytes: b"ours".to_vec(),
        };
        let blocks = TokenBlocks::new(false);
        let memo = kv(3, 9, "");
        for (leader, is_writer) in
            [(kv(5, 9, "ours"), true), (kv(6, 9, "ours"), false), (kv(5, 8, "ours"), false)]
        {
            let holder = of_election(&leader, Some((&memo, &record)), blocks);
            let expected = if is_writer { Holder::Writer } else { Holder::Foreign(&leader) };
            assert_eq!(holder, expected, "{leader:?}");
        }
        let broken = format!("b 1 {} 5 x", ClaimId([7; 16]));
        for value in ["", &broken] {
            assert_eq!(
                of_election(&kv(5, 8, value), Some((&memo, &record)), blocks),
                Holder::Other,
                "{value}"
            );
        }
        assert_eq!(of_election(&kv(7, 7, "theirs"), None, blocks), Holder::Foreign(&kv(7, 7, "theirs")));
    }
}
