//! Passes the standard output of CMD on to that of this process, and keeps a copy of its beginning.
//!
//! A thread copies the bytes, because the reader of the standard output may stop reading. If the supervision itself
//! waited for the reader, the lock would be lost.

use std::{
    fs::File,
    io::{self, ErrorKind, PipeReader, Read, Write, pipe, stdout},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use crate::{event_loop::EventLoop, log, signals::interrupts_wait};

/// How much of the output is kept: the most that an engine stores beside a name.
pub(crate) const MAX_KEPT: usize = 64 * 1024;
/// The number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// How many bytes the thread reads after CMD has ended: the largest size of a pipe, without rights to a larger one.
/// Processes that CMD left behind could write forever.
const MAX_REST: usize = 1024 * 1024;
/// How long the rest of the output of a CMD that failed, or was ended, may take.
const FAILED_LIMIT: Duration = Duration::from_secs(1);

/// The copy of the output of one CMD.
pub(crate) struct Capture {
    state: Arc<Mutex<State>>,
    /// Becomes readable when CMD has ended.
    stop: Arc<EventFd>,
}

/// The result of a capture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// Whether more was printed than `bytes`.
    pub(crate) is_cut: bool,
}

#[derive(Default)]
struct State {
    kept: Vec<u8>,
    is_cut: bool,
    /// Whether the thread has written everything, or cannot write any more.
    is_done: bool,
    waker: Option<Waker>,
}

impl Capture {
    /// Starts the thread. The returned descriptor is for the standard output of CMD.
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor or no thread left.
    pub(crate) fn start() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe()?;
        fcntl(reader.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let state = Arc::new(Mutex::new(State::default()));
        let out = File::from(stdout().as_fd().try_clone_to_owned()?);
        let (thread_stop, thread_state) = (Arc::clone(&stop), Arc::clone(&state));
        let work = move || {
            if let Err(error) = copy(reader, out, &thread_stop, &thread_state)
                // The reader has gone. CMD learns it as it would without this copy: its next write fails.
                && error.kind() != ErrorKind::BrokenPipe
            {
                log::print_message(&format!("cannot pass the output of CMD on: {error}"));
            }
            let mut state = lock(&thread_state);
            state.is_done = true;
            state.waker.take().into_iter().for_each(Waker::wake);
        };
        std::thread::Builder::new().name("lh-output".to_owned()).spawn(work)?;
        Ok((Self { state, stop }, writer.into()))
    }

    /// Waits until the output of a CMD that has ended is written, and returns its beginning. A signal ends the wait. If
    /// CMD failed, a time limit ends it too.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn finish(self, event_loop: &EventLoop, has_failed: bool) -> Result<Kept, Errno> {
        self.stop.write(1)?;
        let done = std::future::poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.is_done {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        });
        let is_done =
            event_loop.block_on(done, has_failed.then_some(FAILED_LIMIT), interrupts_wait)?.is_some();
        let mut state = lock(&self.state);
        Ok(Kept { bytes: std::mem::take(&mut state.kept), is_cut: state.is_cut || !is_done })
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies until the output ends, or until CMD has ended and what it wrote is read.
fn copy(mut reader: PipeReader, mut out: File, stop: &EventFd, state: &Mutex<State>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut rest = MAX_REST;
    loop {
        let mut fds =
            [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_ended = fds[1].any() == Some(true);
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                keep(&mut lock(state), &chunk[..len]);
                out.write_all(&chunk[..len])?;
                if has_ended {
                    rest = rest.saturating_sub(len);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if has_ended {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
        if rest == 0 {
            return Ok(());
        }
    }
}

/// Keeps the beginning of the output.
fn keep(state: &mut State, chunk: &[u8]) {
    let fitting = chunk.len().min(MAX_KEPT - state.kept.len());
    state.kept.extend(&chunk[..fitting]);
    state.is_cut |= fitting < chunk.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_is_kept() {
        let mut state = State::default();
        keep(&mut state, &vec![1; MAX_KEPT - 1]);
        keep(&mut state, &[2]);
        assert!(!state.is_cut && state.kept.len() == MAX_KEPT);
        keep(&mut state, &[3]);
        assert!(state.is_cut && state.kept.len() == MAX_KEPT && state.kept.ends_with(&[1, 2]));
    }
}
