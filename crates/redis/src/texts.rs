//! The texts of the scripts: the files of `lua/` that make up each. `tests/redis/stops.rs` uses them from here, too.

/// The text of a script: its files, one after the other. The functions for a name (`name`) come before the file of the
/// request (such as `claim`), and after the fast path of the request (such as `claim_quick`).
macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!(concat!("lua/", $file, ".lua"))),+) };
}

pub(crate) const CLAIM: &str = text!(
    "head",
    "claim_request",
    "claim_quick",
    "quick_end",
    "lock_string",
    "record",
    "relied",
    "name",
    "stale",
    "one_claim",
    "claim"
);
pub(crate) const CLAIM_ALL: &str = text!(
    "head",
    "claim_request",
    "lock_string",
    "record",
    "relied",
    "name",
    "stale",
    "one_claim",
    "claim_all"
);
pub(crate) const RENEW: &str = text!(
    "head",
    "renew_quick",
    "quick_end",
    "lock_string",
    "record",
    "relied",
    "name",
    "renew",
    "renew_each"
);
pub(crate) const DOWNGRADE: &str =
    text!("head", "lock_string", "record", "relied", "name", "renew", "downgrade");
pub(crate) const UPGRADE: &str = text!(
    "head",
    "claim_request",
    "lock_string",
    "record",
    "relied",
    "name",
    "stale",
    "one_claim",
    "upgrade"
);
pub(crate) const RELEASE: &str = text!(
    "head",
    "release_quick",
    "quick_end",
    "lock_string",
    "record",
    "relied",
    "name",
    "wake",
    "release",
    "release_each"
);
pub(crate) const READ_MEMO: &str =
    text!("head", "lock_string", "record", "relied", "name", "memo", "read_memo");
pub(crate) const WRITE_MEMO: &str = text!(
    "head",
    "lock_string",
    "record",
    "relied",
    "name",
    "wake",
    "release",
    "memo",
    "memo_followers",
    "write_memo"
);
pub(crate) const FOLLOW_MEMO: &str = text!("head", "memo_followers", "follow_memo");
pub(crate) const BREAK: &str = text!("head", "lock_string", "record", "relied", "name", "wake", "break");
pub(crate) const LOOK: &str = text!("head", "lock_string", "record", "relied", "name", "stale", "look");
pub(crate) const NAMES: &str = text!("head", "names");
pub(crate) const FENCE: &str = text!("fence");
pub(crate) const RENEW_LOCK: &str = text!("head", "renew_lock");
pub(crate) const RELEASE_LOCK: &str = text!("head", "release_lock");
pub(crate) const RENEW_SHARED: &str = text!("head", "renew_shared");
pub(crate) const RELEASE_SHARED: &str = text!("head", "release_shared");
pub(crate) const CLAIM_FREE: &str = text!("claim_lone", "claim_free_head", "claim_free");
pub(crate) const RELEASE_FREE: &str = text!("release_free");
pub(crate) const CLAIM_NODE: &str = text!("claim_lone", "claim_free_head", "claim_node");
pub(crate) const RELEASE_NODE: &str = text!("release_node");

/// The texts of the scripts for locks of Redisson.
pub(crate) mod redisson {
    pub(crate) const CLAIM: &str = text!(
        "head",
        "claim_request",
        "lock_redisson",
        "record",
        "relied",
        "name",
        "stale",
        "one_claim",
        "claim"
    );
    pub(crate) const RENEW: &str =
        text!("head", "lock_redisson", "record", "relied", "name", "renew", "renew_each");
    pub(crate) const RELEASE: &str = text!(
        "head",
        "lock_redisson",
        "record",
        "relied",
        "name",
        "wake_redisson",
        "release",
        "release_each"
    );
    pub(crate) const READ_MEMO: &str =
        text!("head", "lock_redisson", "record", "relied", "name", "memo", "read_memo");
    pub(crate) const WRITE_MEMO: &str = text!(
        "head",
        "lock_redisson",
        "record",
        "relied",
        "name",
        "wake_redisson",
        "release",
        "memo",
        "memo_followers",
        "write_memo"
    );
    pub(crate) const BREAK: &str =
        text!("head", "lock_redisson", "record", "relied", "name", "wake_redisson", "break");
    pub(crate) const LOOK: &str = text!("head", "lock_redisson", "record", "relied", "name", "stale", "look");
    pub(crate) const RENEW_LOCK: &str = text!("head", "lock_redisson", "renew_lock_redisson");
    pub(crate) const RELEASE_LOCK: &str =
        text!("head", "lock_redisson", "wake_redisson", "release_lock_redisson");
    pub(crate) const RENEW_SHARED: &str = text!("head", "lock_redisson", "renew_shared_redisson");
    pub(crate) const RELEASE_SHARED: &str =
        text!("head", "lock_redisson", "wake_redisson", "release_shared_redisson");
}

/// The text of a script for one node of a Redlock: the common functions, then the file of the request, such as `claim`.
macro_rules! vote {
    ($file:literal) => {
        concat!(include_str!("lua/redlock/head.lua"), include_str!(concat!("lua/redlock/", $file, ".lua")))
    };
}

pub(crate) const LOCK_NODE: &str = vote!("claim");
pub(crate) const WRITE_TOKEN: &str = vote!("write");
pub(crate) const RENEW_NODE: &str = vote!("renew");
pub(crate) const RELEASE_VOTE: &str = vote!("release");
pub(crate) const BREAK_NODE: &str = vote!("break");
pub(crate) const LOOK_NODE: &str = vote!("look");
