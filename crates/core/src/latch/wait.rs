//! Waits until a latch is open: follows its memo.

use std::time::Duration;

use super::{Arrivals, Latch};
use crate::{BoxFuture, Error, ErrorKind, Name, contract::time::format_duration};

impl Latch {
    /// Waits until all parties have counted down. An outage of the engine is waited for.
    ///
    /// On engines that push changes of memos all who wait wake at once; on others each of them reads the latch at
    /// intervals of up to 2 s.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:latch-wait")?;
    /// let import = locks.latch("import", 1);
    /// import.count_down("shard-a").await?;
    /// assert!(import.wait().await?.is_open());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing was sent), if the
    /// latch was made for another count, or if another memo is stored under the name;
    /// [`is_invalid`](Error::is_invalid) for an invalid name or count; [`is_denied`](Error::is_denied);
    /// [`is_closed`](Error::is_closed) after `Locks::close`, and [`ErrorKind::Forked`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn wait(&self) -> impl Future<Output = Result<Arrivals, Error>> + Send + use<> {
        self.clone().wait_for_all(None)
    }

    /// [`wait`](Self::wait), for at most `limit`.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:latch-wait-within")?;
    /// let import = locks.latch("import", 2);
    /// let error = import.wait_within(std::time::Duration::from_millis(1)).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`is_timed_out`](Error::is_timed_out) if parties were missing when the wait ended;
    /// [`is_unreachable`](Error::is_unreachable) if the engine could not be read then.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    pub fn wait_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Arrivals, Error>> + Send + use<> {
        self.clone().wait_for_all(Some(limit))
    }

    /// [`wait`](Self::wait) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_blocking(&self) -> Result<Arrivals, Error> {
        self.request.handle().block_on(self.wait())?
    }

    /// [`wait_within`](Self::wait_within) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`wait_within`](Self::wait_within).
    #[track_caller]
    pub fn wait_within_blocking(&self, limit: Duration) -> Result<Arrivals, Error> {
        self.request.handle().block_on(self.wait_within(limit))?
    }

    async fn wait_for_all(self, limit: Option<Duration>) -> Result<Arrivals, Error> {
        let name = self.checked()?;
        let mut follower = self.locks.follow_memo(name.as_str())?;
        let shared = self.locks.shared();
        // What was read last. It is used only after a read was answered.
        let mut seen: Result<Arrivals, Error> = Ok(Arrivals::none(self.count));
        let open = async {
            loop {
                seen = match follower.changed().await {
                    Ok(memo) => Ok(self.arrivals_of(&name, memo)?),
                    // The follower reads again after its interval.
                    Err(error) if passes(&error) => Err(error),
                    Err(error) => return Err(error),
                };
                if let Ok(arrivals) = &seen
                    && arrivals.is_open()
                {
                    return Ok(arrivals.clone());
                }
            }
        };
        let open: BoxFuture<'_, _> = Box::pin(open);
        let Some(limit) = limit else { return open.await };
        let alarm = shared.alarm(shared.now().after(limit));
        tokio::select! {
            biased;
            opened = open => return opened,
            _ = alarm => {}
        }
        shared.check_open()?;
        if follower.is_unanswered() {
            seen = self.read_at_limit(&name, limit).await;
        }
        let arrivals = seen?;
        if arrivals.is_open() {
            return Ok(arrivals);
        }
        let (engine, name_text) = (self.locks.profile().engine, name.as_str());
        let (missing, count, limit) = (arrivals.missing(), self.count, format_duration(limit));
        let message = format!(
            "{engine} latch {name_text:?}: {missing} of {count} parties had not counted down after {limit}"
        );
        Err(Error::new(ErrorKind::TimedOut, message).of_name(&name))
    }

    /// Reads the latch at the end of a wait, in the short time by which it may pass its limit.
    async fn read_at_limit(&self, name: &Name, limit: Duration) -> Result<Arrivals, Error> {
        let read = self.locks.read_memo_of(name);
        if let Some(memo) = self.locks.shared().done_within(Duration::ZERO, read).await {
            return self.arrivals_of(name, memo?);
        }
        let (engine, name_text, limit) = (self.locks.profile().engine, name.as_str(), format_duration(limit));
        let message = format!("{engine} latch {name_text:?}: not read in time: no answer within {limit}");
        Err(Error::new(ErrorKind::Unreachable, message).of_name(name))
    }
}

/// Whether a later read may succeed.
fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unknown | ErrorKind::Refused)
}
