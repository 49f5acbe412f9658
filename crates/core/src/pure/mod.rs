//! State machines without I/O: time and events go in, decisions come out.

pub(crate) mod claim_table;
pub(crate) mod due;
pub(crate) mod in_flight;
pub(crate) mod lease;
pub mod lock_state;
pub(crate) mod memo_rule;
pub(crate) mod pace;
pub(crate) mod rotation;
pub(crate) mod server_clock;
pub(crate) mod stop;
pub(crate) mod token_block;
pub(crate) mod wait;
