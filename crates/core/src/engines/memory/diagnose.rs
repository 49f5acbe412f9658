//! The diagnosis of a store: there is nothing that could be set wrong.

use crate::Diagnostic;

/// What a user should know about every store.
pub(super) fn diagnose() -> Diagnostic {
    Diagnostic::good("memory-process", "locks exclude tasks of this process alone, and end with it")
}
