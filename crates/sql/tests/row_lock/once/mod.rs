//! Work that is done one time, with its record in the transaction of the work.

#[macro_use]
mod suite;
mod clients;
mod commit;
mod mysql;
mod page;
mod postgres;
