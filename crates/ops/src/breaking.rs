//! The end of a hold on purpose, with the wait for a holder that the engine has to ask.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::{Broken, Error, Locks};

/// How long a tool waits for a holder that was asked to stop: three times the default grace of `leasehold run`.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two requests that ask whether the hold has ended.
const ASK_PAUSE: Duration = Duration::from_millis(50);

/// Ends the hold of `name` whose tokens contain `token`. Where the engine asks the holder to stop, as on files, waits
/// up to 15 s for its end. Requests that an engine does not answer are sent again for as long. Blocks the thread.
///
/// ```
/// use leasehold::{Broken, Locks};
///
/// let locks = Locks::connect("memory:")?;
/// let guard = locks.mutex("a").blocking().acquire()?;
/// assert_eq!(leasehold_ops::end_hold(&locks, "a", guard.token().number, false)?, Broken::Done);
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
/// The last error of the engine, as of `Locks::break_hold`: the hold may go on, or may have ended.
pub fn end_hold(locks: &Locks, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
    let begin = Instant::now();
    loop {
        let result = locks.break_hold_blocking(name, token, force);
        match pause_before_next_break(&result, begin.elapsed()) {
            Some(pause) => sleep(pause),
            None => return result,
        }
    }
}

/// The pause before the same request to break a hold is sent again, when the first one was sent this long ago. `None`:
/// the result is final. For tools whose thread must not block; others call [`end_hold`].
#[must_use]
pub fn pause_before_next_break(result: &Result<Broken, Error>, since_first: Duration) -> Option<Duration> {
    // Either the holder was asked to stop and still holds, or the engine is unreachable. In both cases another request
    // may succeed.
    let is_open = result.as_ref().is_err_and(Error::is_unreachable);
    (is_open && since_first < STOP_LIMIT).then_some(ASK_PAUSE)
}

#[cfg(test)]
mod tests {
    use leasehold::ErrorKind;

    use super::*;

    #[test]
    fn only_a_holder_or_an_engine_that_does_not_answer_is_waited_for_and_not_for_ever() {
        let failed = |kind| Err(Error::new(kind, "why"));
        let pause = |result: Result<Broken, Error>, secs| {
            pause_before_next_break(&result, Duration::from_secs(secs)).is_some()
        };
        assert!(pause(failed(ErrorKind::Unreachable), 14));
        assert!(!pause(failed(ErrorKind::Unreachable), 15));
        assert!(!pause(failed(ErrorKind::Denied), 0) && !pause(Ok(Broken::Done), 0));
        assert!(!pause(Ok(Broken::NotHeld), 0));
    }

    #[test]
    fn a_hold_of_another_token_is_not_ended() {
        let locks = Locks::connect("memory:").unwrap();
        let guard = locks.mutex("a").blocking().acquire().unwrap();
        let token = guard.token().number;
        assert_eq!(end_hold(&locks, "a", token + 1000, true).unwrap(), Broken::NotHeld);
        assert!(guard.check());
        assert_eq!(end_hold(&locks, "a", token, true).unwrap(), Broken::Done);
        drop(guard);
        assert!(locks.mutex("a").blocking().try_acquire().is_ok());
    }
}
