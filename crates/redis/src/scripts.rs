//! The scripts, their keys and arguments, and their calls.

use std::{fmt, io::Write, sync::LazyLock, time::Duration};

use leasehold_core::{ClaimId, Token};
use redis::Cmd;
use smallvec::SmallVec;

use crate::{
    keys::{COMMON_COUNTER_PREFIX, Keys, RESERVED_PREFIX},
    layout::Layout,
    outbox::Destination,
    texts,
};

/// A script on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Claim,
    /// Claims several names: all of them, or none.
    ClaimAll,
    Renew,
    Release,
    Break,
    /// Shows the holders and waiters of a name.
    Look,
    /// Lists the keys that match a pattern, one step of `SCAN` at a time.
    Names,
    /// Executes commands if the fence does not refuse the token.
    Fence,
    /// While a slot is migrating: renews an exclusive hold, with no other key than the lock key.
    RenewLock,
    /// While a slot is migrating: releases an exclusive hold, with no other key than the lock key.
    ReleaseLock,
    /// While a slot is migrating: renews a shared hold or permits, with only two keys: the lock key and the set of the
    /// holds.
    RenewShared,
    /// While a slot is migrating: releases a shared hold or permits, with the keys of
    /// [`RenewShared`](Self::RenewShared).
    ReleaseShared,
    /// The fast path on one server: claims free names.
    ClaimFree,
    /// The fast path on one server: releases names without waiters.
    ReleaseFree,
    /// Like [`ClaimFree`](Self::ClaimFree), for names in any slots of one node of a cluster.
    ClaimNode,
    /// Like [`ReleaseFree`](Self::ReleaseFree), for names in any slots of one node of a cluster.
    ReleaseNode,
    /// Reads the memo of a name.
    ReadMemo,
    /// Writes the memo of a name under an exclusive hold, and ends the hold if asked to.
    WriteMemo,
    /// Begins or ends notifications about a memo, or sends them.
    FollowMemo,
    /// Makes an exclusive hold shared.
    Downgrade,
    /// Replaces a shared hold by an exclusive one.
    Upgrade,
    // The scripts on one node of a Redlock: `lua/redlock`.
    /// Sets lock keys on the node for claims.
    LockNode,
    /// Writes the tokens of claims whose lock key is set on the node.
    WriteToken,
    /// Extends the lifetime of lock keys on the node.
    RenewNode,
    /// Ends claims on the node.
    ReleaseVote,
    /// Ends a hold on the node for an operator.
    BreakNode,
    /// Shows the state of a name on the node.
    LookNode,
}

/// The texts of the scripts, in the order of [`Script`].
pub(crate) const TEXTS: [&str; 27] = [
    texts::CLAIM,
    texts::CLAIM_ALL,
    texts::RENEW,
    texts::RELEASE,
    texts::BREAK,
    texts::LOOK,
    texts::NAMES,
    texts::FENCE,
    texts::RENEW_LOCK,
    texts::RELEASE_LOCK,
    texts::RENEW_SHARED,
    texts::RELEASE_SHARED,
    texts::CLAIM_FREE,
    texts::RELEASE_FREE,
    texts::CLAIM_NODE,
    texts::RELEASE_NODE,
    texts::READ_MEMO,
    texts::WRITE_MEMO,
    texts::FOLLOW_MEMO,
    texts::DOWNGRADE,
    texts::UPGRADE,
    texts::LOCK_NODE,
    texts::WRITE_TOKEN,
    texts::RENEW_NODE,
    texts::RELEASE_VOTE,
    texts::BREAK_NODE,
    texts::LOOK_NODE,
];

/// The digests by which a server finds the scripts that it knows (<https://redis.io/docs/latest/commands/evalsha/>).
static DIGESTS: [LazyLock<String>; TEXTS.len()] = [
    LazyLock::new(|| digest(0)),
    LazyLock::new(|| digest(1)),
    LazyLock::new(|| digest(2)),
    LazyLock::new(|| digest(3)),
    LazyLock::new(|| digest(4)),
    LazyLock::new(|| digest(5)),
    LazyLock::new(|| digest(6)),
    LazyLock::new(|| digest(7)),
    LazyLock::new(|| digest(8)),
    LazyLock::new(|| digest(9)),
    LazyLock::new(|| digest(10)),
    LazyLock::new(|| digest(11)),
    LazyLock::new(|| digest(12)),
    LazyLock::new(|| digest(13)),
    LazyLock::new(|| digest(14)),
    LazyLock::new(|| digest(15)),
    LazyLock::new(|| digest(16)),
    LazyLock::new(|| digest(17)),
    LazyLock::new(|| digest(18)),
    LazyLock::new(|| digest(19)),
    LazyLock::new(|| digest(20)),
    LazyLock::new(|| digest(21)),
    LazyLock::new(|| digest(22)),
    LazyLock::new(|| digest(23)),
    LazyLock::new(|| digest(24)),
    LazyLock::new(|| digest(25)),
    LazyLock::new(|| digest(26)),
];

/// The digest of the script with this index.
fn digest(index: usize) -> String {
    sha1_smol::Sha1::from(TEXTS[index]).digest().to_string()
}

/// Whether a server knows a script for plain locks by this digest.
pub(crate) fn is_plain_digest(digest: &str) -> bool {
    DIGESTS.iter().any(|own| own.as_str() == digest)
}

/// One item of a call: a lock key, and the script's arguments for that lock. All parts of an item share one allocation,
/// because calls are frequent.
#[derive(Debug)]
pub(crate) struct Item {
    bytes: Vec<u8>,
    /// The end of each part in `bytes`: of the lock key, then of each argument.
    ends: SmallVec<[u32; 4]>,
}

/// A duration in milliseconds, as scripts read it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The letters of the side keys of a name, without the memo and its followers: see `lua/name.lua`.
const SIDE_KEYS: &[u8] = b"cqezhds";
/// The letters of these side keys, and `n` for a key that never exists: see [`Layout::declares_absent_key`].
const SIDE_KEYS_AND_ABSENT_KEY: &[u8] = b"cqezhdsn";
/// As [`SIDE_KEYS`], with the memo and its followers.
const SIDE_KEYS_WITH_MEMO: &[u8] = b"cqezhdsmo";
/// As [`SIDE_KEYS_AND_ABSENT_KEY`], with the memo and its followers.
const SIDE_KEYS_WITH_MEMO_AND_ABSENT_KEY: &[u8] = b"cqezhdsmon";
/// The initial capacity of an item, in bytes: most items fit.
const ITEM_BYTES: usize = 320;

impl Item {
    /// An item for a name: its lock key, and the prefix of its side keys as the first argument.
    pub(crate) fn new(keys: &Keys<'_>) -> Self {
        let mut item = Self { bytes: Vec::with_capacity(ITEM_BYTES), ends: SmallVec::new() };
        item.bytes.extend_from_slice(keys.prefix.as_bytes());
        item.text(keys.name.as_bytes()).with_side_key_prefix(keys.tag, keys.layout_letter)
    }

    /// An item for a key that is no lock.
    pub(crate) fn of_key(key: &str) -> Self {
        Self { bytes: Vec::with_capacity(ITEM_BYTES), ends: SmallVec::new() }.text(key.as_bytes())
    }

    /// A claim as the scripts of the fast path read it: tag, id and lock key. The caller adds the request text.
    pub(crate) fn fast_claim(keys: &Keys<'_>, id: ClaimId) -> Self {
        Self::starting_with_tag(keys).hex_id(id).with_lock(keys)
    }

    /// A release as the scripts of the fast path read it: tag, `<id>.<token>`, a blank and the lock key.
    pub(crate) fn fast_release(keys: &Keys<'_>, id: ClaimId, token: Option<Token>) -> Self {
        let mut item = Self::starting_with_tag(keys).hex_id(id);
        // Writing to memory cannot fail.
        let _ = write!(item.bytes, ".{} ", token.map_or(0, |token| token.number));
        item.with_lock(keys)
    }

    /// An item whose first part begins with the tag.
    fn starting_with_tag(keys: &Keys<'_>) -> Self {
        let mut item = Self { bytes: Vec::with_capacity(ITEM_BYTES), ends: SmallVec::new() };
        item.bytes.extend_from_slice(keys.tag.as_bytes());
        item
    }

    /// Appends the lock key, and ends the part.
    fn with_lock(mut self, keys: &Keys<'_>) -> Self {
        self.bytes.extend_from_slice(keys.prefix.as_bytes());
        self.text(keys.name.as_bytes())
    }

    /// Appends the prefix of the side keys, and ends the part.
    fn with_side_key_prefix(mut self, tag: &str, layout_letter: &str) -> Self {
        for part in [RESERVED_PREFIX, tag, "}"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.text(layout_letter.as_bytes())
    }

    /// Appends this text, and ends the part.
    pub(crate) fn text(mut self, text: &[u8]) -> Self {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
        self
    }

    /// Appends this formatted text, and ends the part.
    pub(crate) fn formatted(mut self, text: fmt::Arguments<'_>) -> Self {
        // Writing to memory cannot fail.
        let _ = self.bytes.write_fmt(text);
        self.text(b"")
    }

    /// Appends this number, and ends the part.
    pub(crate) fn number(self, number: u64) -> Self {
        self.formatted(format_args!("{number}"))
    }

    /// Appends this id, and ends the part.
    pub(crate) fn id(self, id: ClaimId) -> Self {
        self.hex_id(id).text(b"")
    }

    /// Appends the id of a claim and its token, as in the value of the lock key, and ends the part. If the token is
    /// unknown, appends the id and a dot.
    pub(crate) fn grant(self, id: ClaimId, token: Option<Token>) -> Self {
        let item = self.hex_id(id);
        match token {
            Some(token) => item.formatted(format_args!(".{}", token.number)),
            None => item.text(b"."),
        }
    }

    /// Appends the 32 hexadecimal digits of an id. Does not end the part.
    fn hex_id(mut self, id: ClaimId) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (digits, byte) in text.chunks_exact_mut(2).zip(id.0) {
            digits.copy_from_slice(&[byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]));
        }
        self.bytes.extend_from_slice(&text);
        self
    }

    /// Declares the side keys as keys of the command. Each kind of side key has a letter. `key` is a buffer for one
    /// key.
    fn declare(&self, side_key_letters: &[u8], key: &mut Vec<u8>, command: &mut Cmd) {
        let mut parts = self.parts();
        let (Some(lock), Some(side_key_prefix)) = (parts.next(), parts.next()) else { return };
        key.clear();
        key.extend_from_slice(side_key_prefix);
        // The place of the letter.
        key.push(0);
        key.extend_from_slice(lock);
        for &letter in side_key_letters {
            key[side_key_prefix.len()] = letter;
            command.arg(key.as_slice());
        }
    }

    /// The lock key, then each argument.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().map(move |&end| {
            let part = &self.bytes[begin..end as usize];
            begin = end as usize;
            part
        })
    }
}

impl Script {
    /// Whether the script accepts any number of items, and answers each separately.
    pub(crate) const fn accepts_many(self) -> bool {
        matches!(
            self,
            Self::Claim
                | Self::Renew
                | Self::Release
                | Self::LockNode
                | Self::WriteToken
                | Self::RenewNode
                | Self::ReleaseVote
        ) || self.is_fast_path()
    }

    /// Whether this is a short script of the fast path, which leaves every complicated case to the full script. Such a
    /// script accepts names in any slots, and declares no key of a name.
    pub(crate) const fn is_fast_path(self) -> bool {
        matches!(self, Self::ClaimFree | Self::ReleaseFree | Self::ClaimNode | Self::ReleaseNode)
    }

    /// Whether the script extends holds.
    pub(crate) const fn renews(self) -> bool {
        matches!(self, Self::Renew | Self::RenewLock | Self::RenewShared)
    }

    /// The text of the script, for plain locks.
    pub(crate) const fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// The letters of the side keys that the script declares. Where servers share the slots, a script must declare
    /// every key that it can use.
    const fn side_keys(self, destination: Destination, layout: Layout) -> &'static [u8] {
        match self {
            Self::RenewShared | Self::ReleaseShared => b"h",
            Self::FollowMemo if destination.slot.is_some() => b"o",
            Self::Claim | Self::ClaimAll | Self::Renew | Self::Release | Self::Break | Self::Look
                if destination.slot.is_some() =>
            {
                if layout.declares_absent_key() {
                    SIDE_KEYS_AND_ABSENT_KEY
                } else {
                    SIDE_KEYS
                }
            }
            Self::ReadMemo | Self::WriteMemo if destination.slot.is_some() => {
                if layout.declares_absent_key() {
                    SIDE_KEYS_WITH_MEMO_AND_ABSENT_KEY
                } else {
                    SIDE_KEYS_WITH_MEMO
                }
            }
            Self::Downgrade | Self::Upgrade if destination.slot.is_some() => SIDE_KEYS,
            _ => b"",
        }
    }

    /// Whether the token counter is the first key of the script.
    const fn has_counter(self) -> bool {
        matches!(
            self,
            Self::Claim
                | Self::ClaimAll
                | Self::Renew
                | Self::Release
                | Self::Break
                | Self::Look
                | Self::Fence
                | Self::ReadMemo
                | Self::WriteMemo
                | Self::Downgrade
                | Self::Upgrade
        )
    }

    /// The call of the script for these items. `counter_key` is the key of the token counter; `floor` is the server's
    /// time when the connection was made, in microseconds.
    pub(crate) fn call<'a>(
        self,
        layout: Layout,
        destination: Destination,
        counter_key: &str,
        floor: u64,
        items: impl Iterator<Item = &'a Item> + Clone,
    ) -> Cmd {
        if self.is_fast_path() {
            return self.call_fast_path(counter_key, floor, items);
        }
        let item_bytes: usize = items.clone().map(|item| item.bytes.len()).sum();
        let item_count = items.clone().count();
        let (side_key_letters, lock_count) =
            (self.side_keys(destination, layout), if self == Self::Names { 0 } else { item_count });
        let key_count = usize::from(self.has_counter()) + lock_count * (1 + side_key_letters.len());
        // The length of a side key: the prefix of the side keys, one letter, and the lock key.
        let side_key_bytes = |item: &Item| item.ends.get(1).map_or(0, |&end| end as usize + 1);
        let side_bytes = items.clone().map(side_key_bytes).sum::<usize>() * side_key_letters.len();
        // Room for all arguments, and for their bytes.
        let mut command = Cmd::with_capacity(item_count * 3 + key_count + 4, item_bytes + side_bytes + 128);
        let digest = layout.digest(self).unwrap_or_else(|| DIGESTS[self as usize].as_str());
        command.arg("EVALSHA").arg(digest).arg(key_count);
        if self.has_counter() {
            command.arg(counter_key);
        }
        for item in items.clone().take(lock_count) {
            command.arg(item.parts().next());
        }
        if !side_key_letters.is_empty() {
            let mut key = Vec::with_capacity(ITEM_BYTES);
            items.clone().for_each(|item| item.declare(side_key_letters, &mut key, &mut command));
        }
        for argument in items.flat_map(|item| item.parts().skip(1)) {
            command.arg(argument);
        }
        // The letter `m`: a missing listener proves nothing, see `all_may_listen` in `lua/head.lua`.
        if destination.unsettled {
            command.arg(format!("{floor} m"));
        } else {
            command.arg(floor);
        }
        command
    }

    /// The call of a script of the fast path: see `lua/claim_node.lua` for the arguments.
    fn call_fast_path<'a>(
        self,
        counter_key: &str,
        floor: u64,
        items: impl Iterator<Item = &'a Item> + Clone,
    ) -> Cmd {
        let item_bytes: usize = items.clone().map(|item| item.bytes.len()).sum();
        let item_count = items.clone().count();
        let mut command = Cmd::with_capacity(item_count * 2 + 6, item_bytes + 128);
        command.arg("EVALSHA").arg(&*DIGESTS[self as usize]);
        match self {
            Self::ClaimNode => command
                .arg(0)
                .arg(floor)
                .arg(counter_key.strip_prefix(COMMON_COUNTER_PREFIX).unwrap_or_default()),
            Self::ReleaseNode => command.arg(0),
            Self::ClaimFree => command.arg(1).arg(counter_key).arg(floor).arg(""),
            _ => command.arg(1).arg(counter_key),
        };
        // Most claims have the same request text. It is sent only if it differs from the text of the claim before.
        let mut last_request: &[u8] = b"";
        for item in items {
            let mut parts = item.parts();
            let claim_or_release = parts.next();
            if let Some(request) = parts.next().filter(|request| *request != last_request) {
                command.arg(request);
                last_request = request;
            }
            command.arg(claim_or_release);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, net::TcpStream};

    use leasehold_testkit::server::RedisServer;

    use super::*;

    /// Runs a script for claims on one lock: each item is the id of a claim and the last argument.
    fn eval(server: &RedisServer, text: &str, items: &[(&str, &str)]) -> Vec<String> {
        let mut command = vec![
            "EVAL".to_owned(),
            text.to_owned(),
            (items.len() + 1).to_string(),
            crate::keys::counter_key("lock:", None),
        ];
        command.extend(items.iter().map(|_| "lock:s".to_owned()));
        for (id, request) in items {
            command.extend(["leasehold:{t}", id, request].map(str::to_owned));
        }
        command.push("0".to_owned());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        server.command(&command).split_off(1)
    }

    #[test]
    fn grants_hold_in_a_slow_script() {
        let server = RedisServer::start(&[]);
        // Before Redis 7.2 the clock goes on while a script runs.
        let spin = "return answer_items(function(i) for _ = 1, 100000 do call('TIME') end return release_item(i) end)";
        let release = TEXTS[Script::Release as usize].replace("return answer_items(release_item)", spin);
        let claim = |id: &str, permits: &str| {
            let request = format!("create p {permits} 60000 60000 60000 1 0 1 news owner");
            eval(&server, TEXTS[Script::Claim as usize], &[(&id.repeat(32), &request)]).remove(0)
        };
        let mut subscriber = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        subscriber.write_all(b"SUBSCRIBE news\r\n").unwrap();
        while server.command(&["PUBSUB", "CHANNELS"]) != ["news"] {}

        assert!(claim("a", "1 3").starts_with("held"));
        assert!(claim("b", "1 3").starts_with("held"));
        assert!(claim("c", "2 3").starts_with("waiting"));
        let (a, b) = ("a".repeat(32) + ".", "b".repeat(32) + ".");
        // The first release leaves a minimum hold time of 5 ms, which ends while the second is released. The script
        // uses the time at which it began, so the permit of the first release stays taken.
        let freed = eval(&server, &release, &[(&a, "c 5 0 0"), (&b, "c 0 0 0")]);
        assert_eq!(freed, ["freed", "freed"]);
        assert!(claim("d", "2 3").starts_with("waiting"), "two permits were granted to the waiter");
    }
}
