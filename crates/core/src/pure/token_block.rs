//! Blocks of tokens on a server that numbers the claims itself: etcd by a revision, ZooKeeper by a zxid.
//!
//! A hold that is handed over inside a process needs a new token for each task, but the server gave its claim only one
//! number. So the tokens of a claim are a block: the number of the claim times [`HAND_OVER_TOKENS`], plus the step
//! within the block. A later claim has a larger number, so all tokens of its block are larger.

use std::time::Duration;

use crate::{EngineError, Fault, Grant, Lineage, Previous, Token};

/// The most tokens of one hold. A zxid has 32 bits for the number of the leader's election; with this size, tokens stay
/// below 2^53, the exact integers of JSON programs, for 8,192 elections.
pub const HAND_OVER_TOKENS: u32 = 256;
/// The bit of a lineage that says that its tokens are in blocks of [`HAND_OVER_TOKENS`]. The number of a server has 64
/// bits and leaves this bit free. Tokens in blocks and tokens without blocks cannot be compared, so they are of two
/// lineages.
const HAND_OVER_BIT: u128 = 1 << 64;

/// How the number of a claim becomes the tokens of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBlocks {
    /// The number of tokens in a block: 1 if holds are not handed over.
    size: u32,
}

impl TokenBlocks {
    /// With hand-over, blocks of [`HAND_OVER_TOKENS`] tokens; without, the numbers of the server as they are.
    #[must_use]
    pub const fn new(hand_over: bool) -> Self {
        Self { size: if hand_over { HAND_OVER_TOKENS } else { 1 } }
    }

    /// The number of tokens in a block.
    #[must_use]
    pub const fn size(self) -> u32 {
        self.size
    }

    /// The lineage of the tokens of a server, or of the data on it, with this number.
    #[must_use]
    pub fn lineage(self, server: u64) -> Lineage {
        Lineage::new(u128::from(server) | if self.size > 1 { HAND_OVER_BIT } else { 0 })
    }

    /// The first token of the claim with this number; `None` if the number is negative or too large for a block.
    #[must_use]
    pub fn first(self, number: i64) -> Option<u64> {
        u64::try_from(number).ok()?.checked_mul(self.size.into())
    }

    /// The number of the claim to whose block this token belongs; `None` if no claim has it.
    #[must_use]
    pub fn number_of(self, token: u64) -> Option<i64> {
        i64::try_from(token / u64::from(self.size)).ok()
    }

    /// The grant of the claim with this number, which asked for `tokens` tokens and is held for `ttl`. Such a server
    /// does not report how the previous hold ended.
    ///
    /// # Errors
    /// [`Fault::Internal`] if the number is negative or too large for a block. The claim exists on the server in this
    /// case, too.
    pub fn grant(
        self,
        lineage: Lineage,
        number: i64,
        tokens: u32,
        ttl: Duration,
    ) -> Result<Grant, EngineError> {
        let Some(first) = self.first(number) else {
            return Err(EngineError::new(
                Fault::Internal,
                format!("its number {number} on the server leaves no room for tokens: use hand_over=off"),
            ));
        };
        let token = Token { lineage, number: first };
        Ok(Grant { token, tokens: tokens.clamp(1, self.size), ttl: Some(ttl), previous: Previous::Unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(blocks: TokenBlocks, number: i64, tokens: u32) -> Result<Grant, EngineError> {
        blocks.grant(blocks.lineage(7), number, tokens, Duration::from_secs(1))
    }

    #[test]
    fn a_block_of_a_later_claim_begins_after_all_blocks_of_earlier_ones() {
        let blocks = TokenBlocks::new(true);
        let first = grant(blocks, 5, u32::MAX).unwrap();
        let next = grant(blocks, 6, 0).unwrap();
        assert_eq!((first.token.number, first.tokens), (5 * 256, 256));
        assert_eq!((next.token.number, next.tokens), (6 * 256, 1));
        assert!(first.token.number + u64::from(first.tokens) <= next.token.number);
        for step in 0..u64::from(first.tokens) {
            assert_eq!(blocks.number_of(first.token.number + step), Some(5));
        }
        assert_eq!(blocks.number_of(first.token.number - 1), Some(4));
        assert_eq!(blocks.number_of(next.token.number), Some(6));
    }

    #[test]
    fn without_hand_over_the_token_is_the_number_of_the_server() {
        let bare = TokenBlocks::new(false);
        let grant = grant(bare, 5, 64).unwrap();
        assert_eq!((grant.token.number, grant.tokens), (5, 1));
        assert_eq!((bare.number_of(5), bare.number_of(u64::MAX)), (Some(5), None));
    }

    #[test]
    fn tokens_of_the_two_kinds_cannot_be_compared() {
        let (blocks, bare) = (TokenBlocks::new(true), TokenBlocks::new(false));
        assert_ne!(blocks.lineage(7), bare.lineage(7));
        assert_ne!(blocks.lineage(7), blocks.lineage(8));
        assert_eq!(bare.lineage(u64::MAX).get(), u128::from(u64::MAX));
        assert_eq!(grant(blocks, 1, 1).unwrap().token.partial_cmp(&grant(bare, 1, 1).unwrap().token), None);
    }

    #[test]
    fn a_number_that_leaves_no_room_for_a_block_is_refused() {
        let blocks = TokenBlocks::new(true);
        let largest = i64::MAX / 128;
        assert!(grant(blocks, largest, 1).is_ok());
        for number in [largest + 1, i64::MAX, -1] {
            let error = grant(blocks, number, 1).unwrap_err();
            assert_eq!(error.fault, Fault::Internal);
        }
        assert!(grant(TokenBlocks::new(false), i64::MAX, 1).is_ok());
    }
}
