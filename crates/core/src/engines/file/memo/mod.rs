//! Memos of the file engine: one file for each memo, beside the state file of its name. A memo is replaced by a rename
//! under the hold, so readers, which take no lock, see whole memos.

pub(super) mod layout;
pub(super) mod store;
pub(super) mod sweep;
pub(super) mod verbs;
