//! The `with` blocks that run, of all threads, and what each of them holds.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::ThreadId,
};

use pyo3::{
    PyClass,
    exceptions::{PyRuntimeError, PyTypeError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::PyTuple,
};

use crate::operation::Operation;

/// The blocks of one request. A thread leaves its blocks in the opposite order, except those of generators and
/// coroutines, which are resumed in any order.
pub struct Blocks<T>(Mutex<Vec<Block<T>>>);

struct Block<T> {
    thread: ThreadId,
    entered_by: Code,
    held: Py<T>,
}

/// The code that enters or leaves a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// It was not looked at, because the request had no other block.
    Unknown,
    /// A function, which runs until it returns.
    Function,
    /// A generator or a coroutine, which may be suspended inside the block: the address of its frame. The frame lives
    /// until the block is left.
    Resumed(usize),
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PyClass> Blocks<T> {
    /// This thread is in a block that holds `held`.
    pub fn enter(&self, py: Python<'_>, held: Py<T>) {
        let mut entered_by = Code::Unknown;
        loop {
            let mut blocks = self.lock();
            if blocks.is_empty() || entered_by != Code::Unknown {
                return blocks.push(Block { thread: this_thread(), entered_by, held });
            }
            // Python code, which may use this request, can run while the frame is looked at.
            drop(blocks);
            entered_by = Code::running(py);
        }
    }

    /// This thread leaves the block that the running code entered: the thread that entered it, and what it holds. A
    /// framework may leave a block in another thread than it has entered it.
    pub fn leave(&self, py: Python<'_>) -> PyResult<(ThreadId, Py<T>)> {
        let is_only = self.lock().len() == 1;
        let left_by = if is_only { Code::Unknown } else { Code::running(py) };
        let mut blocks = self.lock();
        let index = position(&blocks, this_thread(), left_by).ok_or_else(|| {
            PyRuntimeError::new_err(
                "this thread is in no `with` block of this request, but other threads are in several: make a \
                 request for each block",
            )
        })?;
        let block = blocks.remove(index);
        Ok((block.thread, block.held))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Block<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Code {
    /// The code that calls.
    fn running(py: Python<'_>) -> Self {
        static FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        /// `CO_GENERATOR`, `CO_COROUTINE`, `CO_ITERABLE_COROUTINE` and `CO_ASYNC_GENERATOR` of Python's `inspect`.
        const RESUMED: u32 = 0x20 | 0x80 | 0x100 | 0x200;
        let frame = FRAME.import(py, "sys", "_getframe").and_then(|frame| frame.call0());
        let flags = frame.as_ref().ok().and_then(|frame| {
            let code = frame.getattr(intern!(py, "f_code")).ok()?;
            code.getattr(intern!(py, "co_flags")).ok()?.extract::<u32>().ok()
        });
        match (frame, flags) {
            (Ok(frame), Some(flags)) if flags & RESUMED != 0 => Self::Resumed(frame.as_ptr() as usize),
            // Also code that is not of Python, and has no frame.
            _ => Self::Function,
        }
    }
}

/// The index of the block that `code` leaves in `thread`.
fn position<T>(blocks: &[Block<T>], thread: ThreadId, code: Code) -> Option<usize> {
    let last = |is_left: &dyn Fn(&Block<T>) -> bool| blocks.iter().rposition(is_left);
    let left = match code {
        // A block that was entered before this request had others may be that of any code.
        Code::Resumed(_) => last(&|block| block.entered_by == code)
            .or_else(|| last(&|block| block.entered_by == Code::Unknown)),
        Code::Function | Code::Unknown => {
            last(&|block| block.thread == thread && !matches!(block.entered_by, Code::Resumed(_)))
        }
    };
    left.or_else(|| last(&|block| block.thread == thread)).or_else(|| (blocks.len() == 1).then_some(0))
}

/// The calling thread.
pub fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// The end of a `with` block: ends what it holds by `release`, unless the block has done that itself (`None`).
pub fn leave(
    py: Python<'_>,
    release: PyResult<Option<Operation>>,
    exception: &Bound<'_, PyTuple>,
) -> PyResult<bool> {
    let has_exception = exception.get_item(0).is_ok_and(|kind| !kind.is_none());
    let release = match release {
        Ok(Some(release)) => release,
        Ok(None) => return Ok(false),
        Err(_) if has_exception => return Ok(false),
        Err(error) => return Err(error),
    };
    // An exception of a signal handler is raised in any case.
    let released = release.block(py)?(py);
    // An exception of the block is worth more than that of the release, which follows from it or comes too late.
    if has_exception { Ok(false) } else { released.map(|_| false) }
}

/// The refusal to pickle or copy a hold.
pub fn not_pickled(what: &str, instead: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a {what} belongs to the process that acquired it, and cannot be pickled or copied: pickle the {instead}, and \
         acquire there"
    ))
}
