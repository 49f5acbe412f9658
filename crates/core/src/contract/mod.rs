//! The vocabulary of locks, and what an engine has to do. No I/O, no clock, no task.

pub(crate) mod actor;
pub(crate) mod claim;
pub(crate) mod claim_all;
pub(crate) mod convert;
pub(crate) mod diagnose_certificate;
pub(crate) mod diagnostic;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod forward;
pub(crate) mod handle;
pub(crate) mod holder_view;
pub(crate) mod inspect;
pub(crate) mod label;
pub(crate) mod memo;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod notice;
pub(crate) mod observe;
pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod profile;
pub(crate) mod time;
pub(crate) mod time_change;
pub(crate) mod token;
