//! The decision of an engine about the write of a memo. Engines that read the stored state and then write it in one
//! atomic step use it; engines whose server decides do the same in their scripts and conditions.

use crate::{EngineError, MemoKind, MemoVersion, MemoWrite, kind_error};

/// What to do for the write of a memo.
#[derive(Debug)]
pub enum MemoVerdict {
    /// Store the memo, end the hold if the write says so, and answer [`Done`](crate::Written::Done).
    Store,
    /// A later write of the same claim is stored: leave it, end the hold if the write says so, and answer
    /// [`Done`](crate::Written::Done).
    LeaveLater,
    /// Change nothing and answer [`Overtaken`](crate::Written::Overtaken).
    Overtaken,
    /// Change nothing and fail with this error.
    Refuse(EngineError),
}

/// The memo that is stored under a name, as far as it decides about a write.
#[derive(Clone, Copy, Debug)]
pub struct MemoHead<'a> {
    /// What it is for.
    pub kind: &'a MemoKind,
    /// Which write stored it.
    pub version: MemoVersion,
    /// Its time is over. Its kind does not count any more. Its number does, because a late write of the same hold would
    /// otherwise bring back an older memo; so an engine removes an ended memo only after the end of the hold.
    pub has_ended: bool,
}

/// Decides about a write by the state at one moment. `is_held`: the claim holds the name with the token of the write,
/// unbroken. `stored`: the memo that is stored, also if it has ended.
#[must_use]
pub fn judge_memo(write: &MemoWrite, is_held: bool, stored: Option<MemoHead<'_>>) -> MemoVerdict {
    if !is_held {
        return MemoVerdict::Overtaken;
    }
    let Some(MemoHead { kind, version, has_ended }) = stored else { return MemoVerdict::Store };
    if !has_ended && kind != write.memo.kind() {
        return MemoVerdict::Refuse(kind_error(kind, write.memo.kind()));
    }
    // Numbers of different claims are not comparable: a hold that ended has written its last memo.
    if version.id == write.version.id && version.number > write.version.number {
        return MemoVerdict::LeaveLater;
    }
    MemoVerdict::Store
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ClaimId, Fault, HoldAfter, Lineage, Name, NewMemo, Token};

    fn version(id: u8, number: u64) -> MemoVersion {
        MemoVersion { id: ClaimId([id; 16]), number }
    }

    fn write() -> MemoWrite {
        let token = Token { lineage: Lineage::new(1), number: 7 };
        MemoWrite {
            name: Name::new("n").unwrap(),
            version: version(1, 5),
            hold_token: token,
            token,
            memo: NewMemo::new(MemoKind::ONCE, "x", Duration::from_secs(1)).unwrap(),
            after: HoldAfter::Keep,
        }
    }

    fn head((kind, version): &(MemoKind, MemoVersion), has_ended: bool) -> MemoHead<'_> {
        MemoHead { kind, version: *version, has_ended }
    }

    #[test]
    fn the_number_of_an_ended_memo_counts_and_its_kind_does_not() {
        let verdict =
            |kind, id, number| judge_memo(&write(), true, Some(head(&(kind, version(id, number)), true)));
        for kind in [MemoKind::ONCE, MemoKind::LATCH] {
            assert!(matches!(verdict(kind.clone(), 1, 6), MemoVerdict::LeaveLater), "{kind}");
            assert!(matches!(verdict(kind.clone(), 1, 4), MemoVerdict::Store), "{kind}");
            assert!(matches!(verdict(kind.clone(), 2, 6), MemoVerdict::Store), "{kind}");
        }
    }

    #[test]
    fn only_an_older_memo_of_the_same_kind_is_replaced_and_only_under_the_hold() {
        let verdict = |is_held, stored: Option<(MemoKind, MemoVersion)>| {
            judge_memo(&write(), is_held, stored.as_ref().map(|stored| head(stored, false)))
        };
        let once = |id, number| Some((MemoKind::ONCE, version(id, number)));
        for stored in [None, once(1, 4), once(1, 5), once(2, 9)] {
            assert!(matches!(verdict(true, stored.clone()), MemoVerdict::Store), "{stored:?}");
            assert!(matches!(verdict(false, stored.clone()), MemoVerdict::Overtaken), "{stored:?}");
        }
        assert!(matches!(verdict(true, once(1, 6)), MemoVerdict::LeaveLater));
        let refused = verdict(true, Some((MemoKind::LATCH, version(1, 4))));
        assert!(
            matches!(&refused, MemoVerdict::Refuse(error) if error.fault == Fault::Misconfigured
                && error.message.contains("latch") && error.message.contains("once")),
            "{refused:?}"
        );
        let overtaken = verdict(false, Some((MemoKind::LATCH, version(1, 4))));
        assert!(matches!(overtaken, MemoVerdict::Overtaken), "{overtaken:?}");
    }
}
