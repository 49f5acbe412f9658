//! The statements of sessions. Each is in a file of its own, with its contract.

use tokio_postgres::types::Type;

const KEYS: Type = Type::INT8_ARRAY;
const HOWS: Type = Type::INT2_ARRAY;
const TEXTS: Type = Type::TEXT_ARRAY;
const FLAGS: Type = Type::BOOL_ARRAY;

/// A statement, and the types of its parameters.
pub(super) struct Sql {
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

macro_rules! statements {
    ($($name:ident = $file:literal [$($type:expr),*];)*) => {
        $(pub(super) static $name: Sql =
            Sql { text: include_str!(concat!("../sql/session/", $file, ".sql")), types: &[$($type),*] };)*
    };
}

statements! {
    IDENTITY = "identity" [];
    SETTINGS = "settings" [TEXTS, TEXTS];
    PIN = "pin" [];
    HEARTBEAT = "heartbeat" [];
    TRY = "try" [KEYS, HOWS, Type::BOOL];
    UNLOCK = "unlock" [KEYS, HOWS, KEYS, TEXTS];
    TRY_ONE = "try_one" [Type::INT8, Type::INT2];
    UNLOCK_ONE = "unlock_one" [Type::INT8, Type::INT2, Type::INT8, Type::TEXT];
    WATCH = "watch" [KEYS, FLAGS, KEYS, FLAGS];
    PERMITS = "permits" [KEYS, Type::INT8, Type::INT8];
    UNDO = "undo" [KEYS, HOWS];
    LOOK = "look" [KEYS, Type::INT4_ARRAY];
}
