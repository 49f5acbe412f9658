//! From a URL to an engine.

use std::{fmt, ops::Deref, sync::Arc};

use leasehold_core::{Engine, Error, Keeper, Observe};

use crate::url::Url;

/// Locks on the engine that a URL names. Everything else is a method of [`leasehold_core::Locks`].
#[derive(Clone)]
pub struct Locks {
    core: leasehold_core::Locks,
    #[cfg(feature = "file")]
    file: Option<Arc<leasehold_core::file::FileEngine>>,
}

/// How to connect, beside the URL.
#[derive(Default)]
#[must_use]
pub struct Connect {
    owner: Option<String>,
    keeper: Option<Keeper>,
    observer: Option<Arc<dyn Observe>>,
}
