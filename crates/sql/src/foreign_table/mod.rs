//! Locks in tables of other programs: one row is one lock.
//!
//! All layouts have one algorithm (`client`): a claim inserts the row, or takes over a row whose time has passed, in
//! one short transaction that is committed only after the client has read the result. A layout (`options`) says which
//! table that is, a format (`format`) how its columns store a hold, as fragments of SQL for one dialect. A hold of ours
//! has an owner text that no other hold ever has (`owner_text`), so a row is known as ours by this text, never by its
//! name alone.

mod client;
mod columns;
mod commit;
mod ddl;
mod engine;
mod format;
mod guarantee;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod operator;
mod options;
mod owner_text;
mod pool;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod release;
mod row;
mod statements;
mod store;

pub use self::{
    engine::ForeignTableEngine,
    options::{ForeignTable, LAYOUT_WORDS, Layout},
};
