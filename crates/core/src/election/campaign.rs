//! Campaigns: waiting for the lead, and work under it.

use std::{sync::Arc, time::Duration};

use crate::{Acquire, Election, Error, Leading, Request, RunError};

impl Election {
    /// Waits until this candidate leads and its value is published.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:campaign")?;
    /// let leading = locks.election("scheduler").value("10.0.0.7:8080").campaign().await?;
    /// println!("leader in term {}", leading.term());
    /// leading.resign().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Request::acquire`]. [`is_misconfigured`](Error::is_misconfigured) also if there is a value and the
    /// engine stores no memos (then nothing was sent), or if a memo of another kind is stored under the name;
    /// [`is_invalid`](Error::is_invalid) also for an empty or too long value. Those of a write if the value could not
    /// be published: [`is_lost`](Error::is_lost), [`is_unknown`](Error::is_unknown), or the engine's error. Then this
    /// candidate does not lead.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or releases the name. Nothing is left behind but a memo that counts as
    /// vacant.
    pub fn campaign(&self) -> impl Future<Output = Result<Leading, Error>> + Send + use<> {
        self.lead(self.request_of_campaign().acquire())
    }

    /// [`campaign`](Self::campaign), but waits for at most `limit` until it leads and its value is published, also if
    /// the engine does not answer. The limit includes the requests after the grant, which publish the value: a campaign
    /// that is granted near its end may be given up, so choose a limit of many round trips.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:campaign-within")?;
    /// use std::time::Duration;
    /// let leading = locks.election("scheduler").campaign().await?;
    /// let error = locks.election("scheduler").campaign_within(Duration::ZERO).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// # drop(leading);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign) and [`Request::acquire_within`]; [`is_unreachable`](Error::is_unreachable) also
    /// if the value was not published in time. Then this candidate does not lead.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub fn campaign_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Leading, Error>> + Send + use<> {
        let lead = self.lead(self.request_of_campaign().acquire_within(limit));
        let (shared, name) = (Arc::clone(self.locks.shared()), self.request.valid_name());
        // The value is published within the limit, too.
        async move { shared.within_limit(&name?, limit, lead).await }
    }

    /// [`campaign`](Self::campaign), but tries once, without waiting.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:try-campaign")?;
    /// let leading = locks.election("scheduler").try_campaign().await?;
    /// assert!(locks.election("scheduler").try_campaign().await.unwrap_err().is_taken());
    /// # drop(leading);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign) and [`Request::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub fn try_campaign(&self) -> impl Future<Output = Result<Leading, Error>> + Send + use<> {
        self.lead(self.request_of_campaign().try_acquire())
    }

    /// [`campaign`](Self::campaign) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    #[track_caller]
    pub fn campaign_blocking(&self) -> Result<Leading, Error> {
        self.request.handle().block_on(self.campaign())?
    }

    /// Leads one time: campaigns, runs `work`, and resigns. At the moment at which the lead is lost, the work is
    /// cancelled by dropping its future. The work is always dropped before the name is released. To lead again, call
    /// `run` in a loop: each campaign waits at the end of the queue.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:election-run")?;
    /// # async fn schedule_jobs(term: leasehold::Token) {}
    /// let scheduler = locks.election("scheduler").value("10.0.0.7:8080");
    /// scheduler.run(async |leading| schedule_jobs(leading.term()).await).await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if the work did not begin, with the errors of [`campaign`](Self::campaign);
    /// [`RunError::Cancelled`] if the lead was lost while the work ran; [`RunError::Finished`], with the output of the
    /// work, if the lead was lost before the release, or it is unknown whether the name was released.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or drops the work and then releases in the background.
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = Result<T, RunError<T>>> + use<T, W>
    where
        W: AsyncFnOnce(&Leading) -> T,
    {
        let campaign = self.campaign();
        async move {
            let mut leading = campaign.await.map_err(RunError::NotAcquired)?;
            leading.set_working(true);
            let output = leading.run(work(&leading)).await.map_err(RunError::Cancelled)?;
            leading.set_working(false);
            match leading.resign().await {
                Ok(()) => Ok(output),
                Err(error) => Err(RunError::Finished { output, error }),
            }
        }
    }

    /// The campaign; the value is checked before anything is sent.
    fn lead(&self, acquire: Acquire) -> impl Future<Output = Result<Leading, Error>> + Send + use<> {
        let memo = self.publication();
        async move {
            let memo = memo?;
            Leading::begin(acquire.await?, memo).await
        }
    }

    /// The request of one campaign.
    fn request_of_campaign(&self) -> Request {
        self.request.for_new_owner(self.owner.as_deref())
    }
}
