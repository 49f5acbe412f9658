//! The servers of an engine, tried one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{EngineError, Fault};

/// Chooses among servers: holds the number of the server with which the next attempt to connect begins.
#[derive(Debug, Default)]
pub struct Rotation(AtomicUsize);

impl Rotation {
    /// Begins with the server number `first`, modulo the number of servers. Clients that begin with different numbers
    /// are spread over the servers.
    #[must_use]
    pub const fn new(first: usize) -> Self {
        Self(AtomicUsize::new(first))
    }

    /// Connects to the first server that serves, beginning with the server after the one that was connected last. So a
    /// server whose connection broke is tried last.
    ///
    /// # Errors
    /// The first error with another fault than [`Fault::Retry`], else the last error: a refused login is more
    /// informative than a server that is down. If `must_stop` is true after an error, that error is returned and no
    /// other server is tried: the caller needs no connection any more.
    pub async fn connect<'a, S, C, F>(
        &self,
        servers: &'a [S],
        mut connect: impl FnMut(&'a S) -> F,
        must_stop: impl Fn() -> bool,
    ) -> Result<C, EngineError>
    where
        F: Future<Output = Result<C, EngineError>>,
    {
        let first = self.0.load(Ordering::Relaxed) % servers.len().max(1);
        let mut reported: Option<EngineError> = None;
        for number in first..first + servers.len() {
            match connect(&servers[number % servers.len()]).await {
                Ok(connection) => {
                    self.0.store((number + 1) % servers.len(), Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) if must_stop() => return Err(error),
                Err(error) if reported.as_ref().is_none_or(|earlier| earlier.fault == Fault::Retry) => {
                    reported = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(reported.unwrap_or_else(|| EngineError::new(Fault::Misconfigured, "the URL names no server")))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::ready};

    use super::*;

    /// Connects to one of `servers`, each of which answers with a connection (a number) or a fault. Returns the servers
    /// tried and the outcome.
    fn try_servers(
        rotation: &Rotation,
        servers: &[Result<u8, Fault>],
        must_stop: bool,
    ) -> (Vec<usize>, Result<u8, Fault>) {
        let tried = RefCell::new(Vec::new());
        let numbered: Vec<(usize, Result<u8, Fault>)> = servers.iter().copied().enumerate().collect();
        let connect = |(number, answer): &(usize, Result<u8, Fault>)| {
            tried.borrow_mut().push(*number);
            ready(answer.map_err(|fault| EngineError::new(fault, "no")))
        };
        let outcome = pollster::block_on(rotation.connect(&numbered, connect, || must_stop));
        (tried.into_inner(), outcome.map_err(|error| error.fault))
    }

    const DOWN: Result<u8, Fault> = Err(Fault::Retry);
    const DENIED: Result<u8, Fault> = Err(Fault::Denied);

    #[test]
    fn each_server_is_tried_once_and_the_last_used_one_last() {
        let rotation = Rotation::new(1);
        let servers = [Ok(0), DOWN, Ok(2)];
        assert_eq!(try_servers(&rotation, &servers, false), (vec![1, 2], Ok(2)));
        assert_eq!(try_servers(&rotation, &servers, false), (vec![0], Ok(0)));
        assert_eq!(try_servers(&rotation, &[DOWN, DOWN, DOWN], false), (vec![1, 2, 0], DOWN));
        assert_eq!(try_servers(&rotation, &servers, false), (vec![1, 2], Ok(2)), "a failure moves nothing");
        assert_eq!(try_servers(&Rotation::new(7), &[Ok(0), Ok(1)], false), (vec![1], Ok(1)));
    }

    #[test]
    fn a_denial_outranks_an_unreachable_server() {
        let rotation = Rotation::default();
        assert_eq!(try_servers(&rotation, &[DOWN, DENIED, DOWN], false), (vec![0, 1, 2], DENIED));
        assert_eq!(try_servers(&rotation, &[DENIED, DOWN, Ok(2)], false), (vec![0, 1, 2], Ok(2)));
    }

    #[test]
    fn nothing_is_tried_after_the_end_or_without_servers() {
        let rotation = Rotation::default();
        assert_eq!(try_servers(&rotation, &[DOWN, Ok(1)], true), (vec![0], DOWN));
        assert_eq!(try_servers(&rotation, &[], false), (vec![], Err(Fault::Misconfigured)));
    }
}
