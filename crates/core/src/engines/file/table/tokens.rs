//! The token counter: always grows, also across power cuts, without a sync per grant. Pure: the sync is a function
//! argument.
//!
//! `current`, the last token granted, is only as durable as the page cache, which survives the end of a process but not
//! a crash of the machine. So no token above `ceiling` is used, and every value of `ceiling` was first written as
//! `promised` and synced. After a reboot the counter continues at `promised`, above every token that was ever granted.
//! Cost: one sync per name and boot, and one per [`TOKENS_PER_SYNC`] tokens.

use super::super::table::layout::{TICKET_OR_TOKEN_LIMIT, Tokens};
use crate::{EngineError, Fault};

/// How many tokens one sync reserves: a million grants per sync, and room for 2^40 reboots.
const TOKENS_PER_SYNC: u64 = 1 << 20;

/// Mints `count` tokens in this boot; returns the first. `sync` makes its argument durable; the caller writes
/// `tokens` itself, together with the record of the hold.
pub(crate) fn mint(
    tokens: &mut Tokens,
    count: u32,
    boot_id: [u8; 16],
    mut sync: impl FnMut(&Tokens) -> Result<(), EngineError>,
) -> Result<u64, EngineError> {
    if tokens.boot_id != boot_id {
        *tokens =
            Tokens { boot_id, current: tokens.promised, promised: tokens.promised, ceiling: tokens.promised };
    }
    let last = tokens.current + u64::from(count.max(1));
    if last > tokens.ceiling {
        tokens.promised = tokens.promised.max(last + TOKENS_PER_SYNC);
        if tokens.promised >= TICKET_OR_TOKEN_LIMIT {
            return Err(EngineError::new(Fault::Refused, "the token counter of this name is used up"));
        }
        sync(tokens)?;
        // Never before the sync: a process killed between the two steps must not leave a ceiling that is not on disk.
        tokens.ceiling = tokens.promised;
    }
    let first = tokens.current + 1;
    tokens.current = last;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_token_is_one_and_one_sync_serves_a_block() {
        let (mut tokens, mut syncs) = (Tokens::default(), 0);
        for expected in 1..=100 {
            let token = mint(&mut tokens, 1, [1; 16], |_| {
                syncs += 1;
                Ok(())
            });
            assert_eq!(token.unwrap(), expected);
        }
        assert_eq!(syncs, 1);
    }

    #[test]
    fn a_failed_sync_grants_nothing_and_raises_no_ceiling() {
        let mut tokens = Tokens::default();
        let refused = mint(&mut tokens, 1, [1; 16], |_| Err(EngineError::new(Fault::Refused, "EIO")));
        assert!(refused.is_err() && tokens.ceiling == 0 && tokens.current == 0);
    }

    #[test]
    fn a_counter_at_its_end_refuses() {
        let end = TICKET_OR_TOKEN_LIMIT - 5;
        let mut tokens = Tokens { boot_id: [1; 16], current: end, promised: end, ceiling: end };
        assert_eq!(mint(&mut tokens, 1, [1; 16], |_| Ok(())).unwrap_err().fault, Fault::Refused);
    }

    /// An event on a machine between two grants.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Grant(u32),
        /// A process is killed after it wrote `promised`, before it synced.
        KilledBeforeSync,
        /// The machine loses power. The disk then has the last write, or else only the last sync.
        PowerCut {
            has_last_write: bool,
        },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => prop_oneof![Just(1), 1..3_000_000_u32].prop_map(Event::Grant),
            1 => Just(Event::KilledBeforeSync),
            1 => any::<bool>().prop_map(|has_last_write| Event::PowerCut { has_last_write }),
        ]
    }

    proptest! {
        #[test]
        fn no_token_is_granted_twice_whatever_happens(events in prop::collection::vec(event(), 1..60)) {
            let (mut cache, mut disk, mut boot_id, mut largest) = (Tokens::default(), Tokens::default(), 1_u8, 0);
            for event in events {
                match event {
                    Event::Grant(count) => {
                        let first = mint(&mut cache, count, [boot_id; 16], |tokens| { disk = *tokens; Ok(()) }).unwrap();
                        prop_assert!(first > largest);
                        largest = first + u64::from(count) - 1;
                    }
                    Event::KilledBeforeSync => {
                        let mut unsynced = cache;
                        let killed = mint(&mut unsynced, 2_000_000, [boot_id; 16], |_| Err(EngineError::new(Fault::Unknown, "killed")));
                        if killed.is_err() {
                            cache = unsynced;
                        }
                    }
                    Event::PowerCut { has_last_write } => {
                        boot_id = boot_id.wrapping_add(1);
                        if !has_last_write {
                            cache = disk;
                        }
                        disk = cache;
                    }
                }
            }
        }
    }
}
