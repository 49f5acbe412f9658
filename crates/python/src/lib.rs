//! The native part of the Python module `leasehold`: the Rust crate as Python classes. The Python files beside it
//! (`python/leasehold`) have what needs no Rust: context managers of tasks, decorators, exceptions.
#![expect(unreachable_pub, reason = "the classes are documented for Python, in `python/leasehold`")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the Python module of leasehold runs on Linux: the command and the Rust library run elsewhere, too"
);

mod all;
mod arguments;
mod blocks;
mod callbacks;
mod election;
mod errors;
mod event_loop;
mod guard;
mod hold;
mod inspect;
mod leader_watch;
mod locks;
mod log;
mod metrics;
mod once;
mod operation;
mod options;
mod request;
mod task_blocks;
mod task_wait;
mod thread_wait;
mod wakers;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _leasehold {
    #[pymodule_export]
    use crate::{
        all::{All, Guards},
        election::{Election, Leading},
        guard::Guard,
        inspect::{break_hold, diagnose, guarantee, holder, list, show},
        leader_watch::Watch,
        locks::{Locks, Owner, forked},
        log::flush_log,
        metrics::{record_metrics, recorded_metrics},
        once::Once,
        operation::Operation,
        request::Request,
        wakers::WakeQueue,
    };
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::install();
        module.add("_at_exit", crate::hold::AtExit)
    }
}
