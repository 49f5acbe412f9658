//! The native part of the Python module `leasehold`: the Rust crate as Python classes. The Python files beside it
//! (`python/leasehold`) have what needs no Rust: context managers of tasks, decorators, exceptions.
#![expect(unreachable_pub, reason = "the classes are documented for Python, in `python/leasehold`")]

mod arguments;
mod errors;
mod guard;
mod locks;
mod operation;
mod request;
mod thread_wait;
mod wakers;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _leasehold {
    #[pymodule_export]
    use crate::{
        guard::Guard,
        locks::{Locks, Owner, forked},
        operation::Operation,
        request::Request,
        wakers::WakeQueue,
    };
}
