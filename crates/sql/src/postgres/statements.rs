//! The statements. Each is in a file of its own, with its contract.

use tokio_postgres::types::Type;

/// A statement, and the types of its parameters.
pub(crate) struct Sql {
    /// Its index among all statements, for the statements prepared on a connection.
    pub(crate) index: usize,
    /// The text, with unqualified names of the tables.
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

/// The number of statements.
pub(crate) const STATEMENT_COUNT: usize = 21;

const NAMES: Type = Type::TEXT_ARRAY;
const IDS: Type = Type::BYTEA_ARRAY;
const LONGS: Type = Type::INT8_ARRAY;
const INTS: Type = Type::INT4_ARRAY;
const SHORTS: Type = Type::INT2_ARRAY;
const TEXT: Type = Type::TEXT;
const LONG: Type = Type::INT8;
const INT: Type = Type::INT4;
const SHORT: Type = Type::INT2;
const ID: Type = Type::BYTEA;

/// The texts of all statements, by their indexes, each rewritten by `rewrite`.
pub(crate) fn texts(rewrite: impl Fn(&str) -> String) -> [String; STATEMENT_COUNT] {
    let mut texts = [const { String::new() }; STATEMENT_COUNT];
    for sql in ALL {
        texts[sql.index] = rewrite(sql.text);
    }
    texts
}

macro_rules! statements {
    ($($name:ident = $index:literal $file:literal $(LEFT JOIN $joined:literal)? [$($type:expr),*];)*) => {
        static ALL: [&Sql; STATEMENT_COUNT] = [$(&$name),*];
        $(pub(crate) static $name: Sql = Sql {
            index: $index,
            text: concat!(
                include_str!(concat!("sql/", $file, ".sql"))
                $(, "LEFT JOIN (", include_str!(concat!("sql/", $joined, ".sql")), ") AS joined ON true")?
            ),
            types: &[$($type),*],
        };)*
    };
}

statements! {
    CLAIM_MANY = 0 "claim_many" [NAMES, IDS, INTS, LONGS, NAMES, LONG];
    CLAIM_ONE = 1 "claim_one" [TEXT, ID, INT, LONG, TEXT, LONG];
    RELEASE_MANY = 2 "release_many" [NAMES, IDS, LONGS, SHORTS];
    RELEASE_ONE = 3 "release_one" [TEXT, ID, LONG, SHORT];
    RENEW_LOCKS = 4 "renew_locks" [NAMES, IDS, LONGS, LONGS];
    RENEW_CLAIMS = 5 "renew_claims" [NAMES, IDS, LONGS, LONGS];
    REFRESH = 6 "refresh" [NAMES, IDS, LONGS, LONGS];
    LOCK = 7 "lock" [TEXT];
    LOCK_NEW = 8 "lock_new" [TEXT];
    CLAIMS = 9 "claims" [TEXT];
    WRITE = 10 "write" [
        TEXT, LONG, ID, INT, SHORT, TEXT, LONG, LONG, LONG, INT, SHORT, LONG, LONG,
        IDS, SHORTS, LONGS, SHORTS, LONGS, LONGS, LONGS, INTS, SHORTS, NAMES, LONGS, LONGS, LONGS, LONGS, LONGS, LONGS,
        IDS, NAMES, NAMES
    ];
    NAMES_LIKE = 11 "names" [TEXT];
    LOOK = 12 "look" [NAMES];
    SWEEP = 13 "sweep" [TEXT, LONG];
    FORGET = 14 "forget" [NAMES];
    SLOTS = 15 "slots" [];
    // One statement, so that a waiting client sends no second one.
    REFRESH_AND_SLOTS = 16 "refresh" LEFT JOIN "slots" [NAMES, IDS, LONGS, LONGS];
    MEMO_READ = 17 "memo_read" [TEXT];
    MEMO_HEAD = 18 "memo_head" [TEXT];
    MEMO_PUT = 19 "memo_put" [TEXT, TEXT, ID, LONG, TEXT, LONG, ID, LONG, ID];
    MEMO_SWEEP = 20 "memo_sweep" [];
}
