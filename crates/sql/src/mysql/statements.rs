//! The statements. Each is in a file of its own, with its contract.

use super::text::Sql;

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(crate) static $name: Sql = Sql::new(include_str!(concat!("sql/", $file, ".sql")));)*
    };
}

statements! {
    SESSION = "session";
    SESSION_TIMEOUTS = "session_timeouts";
    SERVER = "server";
    REPLICAS = "replicas";
    DEFINITIONS = "definitions";
    META = "meta";
    CLAIM_MANY = "claim_many";
    CLAIM_ONE = "claim_one";
    TAKE_ONE = "take_one";
    RELEASE_MANY = "release_many";
    RELEASE_ONE = "release_one";
    READ_RELEASED = "released";
    RENEW_LOCKS = "renew_locks";
    READ_RENEWED_LOCKS = "renewed_locks";
    RENEW_CLAIMS = "renew_claims";
    READ_RENEWED_CLAIMS = "renewed_claims";
    SLOTS = "slots";
    REFRESH = "refresh";
    STATES = "states";
    POLL_GRANTS = "poll_grants";
    AHEAD = "ahead";
    EXPIRIES = "expiries";
    READ = "read";
    LOCK_NEW = "lock_new";
    LOCK_PUT = "lock_put";
    CLAIMS_PUT = "claims_put";
    CLAIMS_DROP = "claims_drop";
    NAMES_LIKE = "names";
    LOOK = "look";
    SWEEP = "sweep";
    FORGET = "forget";
    MEMO_READ = "memo_read";
    MEMO_HEAD = "memo_head";
    MEMO_PUT = "memo_put";
    MEMO_ENDED = "memo_ended";
    MEMO_SWEEP = "memo_sweep";
}
