//! The messages between this client and the scripts that run on each node: the arguments and answers, as described at
//! the heads of the scripts in `lua/redlock`.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, EngineError, How, Previous};

use crate::{
    keys::Keys,
    outbox::Values,
    previous,
    reply::{Reply, unreadable},
    scripts::{Item, millis},
};

/// A claim's request to every node.
pub(super) struct ClaimRequest<'a> {
    pub(super) claim: &'a Claim,
    /// Whether the node is asked to set the lock, or only to report and extend a lock that this claim has there.
    pub(super) how: How,
    /// The number of the attempt of the claim.
    pub(super) attempt: u32,
    /// The first token of a block that the node writes together with the lock; 0 for none.
    pub(super) guessed_token: u64,
    pub(super) waits: Waits,
    /// The longest ttl of any client of the nodes.
    pub(super) max_ttl: Duration,
    /// The channel for notifications to this client.
    pub(super) channel: &'a str,
}

/// Whether a claim is to be notified of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// The claim is not to be notified: it is a try.
    Never,
    /// The claim is to be notified from now on.
    Now,
    /// The claim is to be notified. The node may already have recorded it as a waiter, because the node answered
    /// "taken" to an earlier request.
    Still,
}

/// A node's answer to a claim.
#[derive(Debug)]
pub(super) struct LockAnswer {
    pub(super) outcome: LockOutcome,
    /// The node's time, in microseconds.
    pub(super) node_micros: u64,
    /// The newest token on the node before this request, and how the hold of that token ended.
    pub(super) newest_token: u64,
    pub(super) newest_hold_ended: Previous,
    /// The block of tokens on the node for this claim; none if `first_token` is 0.
    pub(super) first_token: u64,
    pub(super) tokens: u32,
    /// How long the node has had its data.
    pub(super) data_age: Duration,
    /// The longest ttl of any client, as far as the node knows.
    pub(super) max_ttl: Duration,
    /// How long the lock that is in the way still lasts; `None` if it has no expiry.
    pub(super) ttl_left: Option<Duration>,
}

/// Whether a node has the lock of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockOutcome {
    /// This request set the lock of the claim.
    Locked,
    /// The claim had the lock before this request.
    Relocked,
    /// Another lock is in the way.
    Taken,
    /// The claim does not have the lock, and the request only asked for its state.
    Absent,
    /// The claim was released on the node, or an operator broke its hold.
    Dead,
    /// The value of the lock key is not a string.
    WrongType,
}

impl ClaimRequest<'_> {
    /// The arguments of the script that claims the lock on a node: see `lua/redlock/claim.lua`.
    pub(super) fn item(&self, keys: &Keys<'_>) -> Item {
        let Claim { id, ttl, tokens, owner, .. } = self.claim;
        let how = if self.how == How::Ask { "ask" } else { "create" };
        let waits = match self.waits {
            Waits::Never => 0,
            Waits::Now => 1,
            Waits::Still => 2,
        };
        Item::new(keys).id(*id).formatted(format_args!(
            "{how} {} {} {} {tokens} {waits} {} {} {owner}",
            self.attempt,
            millis(*ttl),
            self.guessed_token,
            millis(self.max_ttl),
            self.channel,
        ))
    }
}

/// Reads a node's answer to a claim.
pub(super) fn read_lock_answer(reply: Values) -> Result<LockAnswer, EngineError> {
    let text = Reply::new(reply).text()?;
    parse_lock_answer(&text).ok_or_else(unreadable)
}

/// Parses `<outcome> <node us> <newest token> <how its hold ended> <first token> <tokens> <data age us> <max ttl ms>
/// <ttl left ms>`.
fn parse_lock_answer(text: &str) -> Option<LockAnswer> {
    let mut words = text.split(' ');
    let outcome = match words.next()? {
        "locked" => LockOutcome::Locked,
        "relocked" => LockOutcome::Relocked,
        "taken" => LockOutcome::Taken,
        "absent" => LockOutcome::Absent,
        "dead" => LockOutcome::Dead,
        "typed" => LockOutcome::WrongType,
        _ => return None,
    };
    let (node_micros, newest_token) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let newest_hold_ended = previous::from_letter(words.next()?);
    let (first_token, tokens) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let data_age = Duration::from_micros(words.next()?.parse().ok()?);
    let max_ttl = Duration::from_millis(words.next()?.parse().ok()?);
    let ttl_left: i64 = words.next()?.parse().ok()?;
    // Negative: the lock has no expiry.
    let ttl_left = u64::try_from(ttl_left).ok().map(Duration::from_millis);
    Some(LockAnswer {
        outcome,
        node_micros,
        newest_token,
        newest_hold_ended,
        first_token,
        tokens,
        data_age,
        max_ttl,
        ttl_left,
    })
}

/// The request to write a block of tokens for an attempt.
pub(super) fn write_item(
    keys: &Keys<'_>,
    claim: &Claim,
    attempt: u32,
    first_token: u64,
    tokens: u32,
) -> Item {
    Item::new(keys).id(claim.id).formatted(format_args!("{attempt} {first_token} {tokens} {}", claim.owner))
}

/// Reads the answer to a request to write a block: whether it is written, the node's time, and its newest token.
pub(super) fn read_write_answer(reply: Values) -> Result<(bool, u64, u64), EngineError> {
    let text = Reply::new(reply).text()?;
    let mut words = text.split(' ');
    let is_written = match words.next() {
        Some("written") => true,
        Some("raced" | "lost") => false,
        _ => return Err(unreadable()),
    };
    let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(unreadable);
    Ok((is_written, number()?, number()?))
}

/// The end of a claim, or of one attempt of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimEnd {
    pub(super) id: ClaimId,
    /// The attempt that ends; `None` for the whole claim.
    pub(super) attempt: Option<u32>,
    /// Whether the claim can make another attempt.
    pub(super) may_retry: bool,
    /// The first token of the hold; 0 if it is unknown whether the claim holds.
    pub(super) token: u64,
    /// How the hold ended.
    pub(super) ended: Previous,
}

impl ClaimEnd {
    /// The arguments of the script that ends the claim on a node: see `lua/redlock/release.lua`. `tombstone`: whether
    /// the node stores a tombstone, because an earlier request of the claim may still arrive. `quarantine`: for how
    /// long after a restart a node may have forgotten the claim.
    pub(super) fn item(&self, keys: &Keys<'_>, tombstone: bool, quarantine: Duration) -> Item {
        let attempt = self.attempt.map_or_else(|| "any".to_owned(), |attempt| attempt.to_string());
        let (token, ended, tombstone) = (self.token, previous::letter(self.ended), u8::from(tombstone));
        Item::new(keys)
            .id(self.id)
            .formatted(format_args!("{attempt} {token} {ended} {tombstone} {}", millis(quarantine)))
    }
}

/// What a renewal does on a node that does not have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingLock {
    /// The node only reports that the lock is missing.
    Report,
    /// The node sets the missing lock again.
    SetAgain,
}

/// The arguments of the script that renews the lock on a node: see `lua/redlock/renew.lua`. `quarantine`: for how long
/// after a restart a node may have forgotten the lock.
pub(super) fn renew_item(
    keys: &Keys<'_>,
    hold: &leasehold_core::Hold,
    missing_lock: MissingLock,
    quarantine: Duration,
) -> Item {
    let (token, ttl) = (hold.token.number, millis(hold.ttl));
    Item::new(keys).id(hold.id).formatted(format_args!(
        "{token} {ttl} {} {}",
        u8::from(missing_lock == MissingLock::SetAgain),
        millis(quarantine)
    ))
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::server::RedisServer;

    use super::*;
    use crate::texts;

    #[test]
    fn the_answer_of_a_node_is_parsed() {
        let answer = parse_lock_answer("locked 1700000000000000 17 l 18 4 5000000 60000 -1").unwrap();
        assert_eq!(
            (answer.outcome, answer.newest_token, answer.newest_hold_ended),
            (LockOutcome::Locked, 17, Previous::Lapsed)
        );
        assert_eq!((answer.first_token, answer.tokens, answer.ttl_left), (18, 4, None));
        assert_eq!((answer.data_age, answer.max_ttl), (Duration::from_secs(5), Duration::from_secs(60)));
        assert_eq!(
            parse_lock_answer("taken 1 0 c 0 0 1 1 250").unwrap().ttl_left,
            Some(Duration::from_millis(250))
        );
        for malformed in
            ["", "locked", "mine 1 0 c 0 0 1 1 250", "locked x 0 c 0 0 1 1 250", "taken 1 0 c 0 0 1 1 x"]
        {
            assert!(parse_lock_answer(malformed).is_none(), "{malformed}");
        }
    }

    /// The script's answer for one lock and one claim.
    fn eval(server: &RedisServer, text: &str, id: &str, words: &str) -> String {
        let reply = server.command(&["EVAL", text, "1", "lock:a", "leasehold:{t}", id, words, "0"]);
        reply[1].clone()
    }

    /// If two claims write the same token on a majority, they have a node in common. That node refuses the second
    /// claim.
    #[test]
    fn a_node_writes_only_larger_tokens_of_the_locked_claim() {
        let server = RedisServer::start(&[]);
        let (one, other) = ("1".repeat(32), "2".repeat(32));
        let lock = |id: &str| server.command(&["SET", "lock:a", &format!("{id}-1"), "PX", "60000"]);
        let write = |id: &str, first_token: u64| {
            let reply = eval(&server, texts::WRITE_TOKEN, id, &format!("1 {first_token} 4 me"));
            let mut words = reply.split(' ');
            format!("{} {}", words.next().unwrap(), words.nth(1).unwrap())
        };
        assert_eq!(write(&one, 10), "lost 0");
        lock(&one);
        assert_eq!(write(&one, 10), "written 13");
        assert_eq!(write(&one, 10), "written 13", "again");
        lock(&other);
        for first_token in [9, 10, 13] {
            assert_eq!(write(&other, first_token), "raced 13");
        }
        assert_eq!(write(&other, 14), "written 17");
        assert_eq!(write(&one, 18), "lost 17");
    }

    /// The votes of two nodes of three decide that the claim holds. The third node may then have the lock of the claim
    /// without a token.
    #[test]
    fn a_release_frees_a_vote_without_a_token() {
        let server = RedisServer::start(&[]);
        let id = "1".repeat(32);
        let release = |token: u64| eval(&server, texts::RELEASE_VOTE, &id, &format!("any {token} c 0 60000"));
        let lock = || drop(server.command(&["SET", "lock:a", &format!("{id}-1"), "PX", "60000"]));
        assert_eq!(release(7), "young", "it may have forgotten it");
        server.command(&["SET", "leasehold:{}B", "1 1000"]);
        lock();
        assert_eq!(release(7), "freed");
        assert_eq!(release(7), "absent");
        lock();
        eval(&server, texts::WRITE_TOKEN, &id, "1 10 1 me");
        assert_eq!(release(7), "other");
        assert_eq!(server.command(&["EXISTS", "lock:a"]), ["0"]);
    }
}
