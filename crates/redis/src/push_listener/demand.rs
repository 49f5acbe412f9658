//! Counts the requests in flight on one server. While requests are in flight, or claims wait, the pulse of the
//! connection asks the server for its time.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the requests in flight. Wakes the pulse of the connection each time the number of requests in flight, or the
/// number of waiting claims, rises from 0 to 1.
#[derive(Default)]
pub(crate) struct Demand {
    requests_in_flight: AtomicUsize,
    /// Notified when the number of requests in flight, or of waiting claims, rises from 0 to 1.
    first_wait: Notify,
}

/// A request that counts as in flight until this value is dropped.
pub(crate) struct InFlightRequest<'a>(&'a Demand);

impl Demand {
    /// Counts a request until the returned value is dropped.
    pub(crate) fn start_request(&self) -> InFlightRequest<'_> {
        if self.requests_in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.notify_first_wait();
        }
        InFlightRequest(self)
    }

    /// Whether requests are in flight.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests_in_flight.load(Ordering::Relaxed) > 0
    }

    /// Wakes the pulse: the number of requests in flight, or of waiting claims, has risen from 0 to 1.
    pub(crate) fn notify_first_wait(&self) {
        self.first_wait.notify_one();
    }

    /// Waits until [`notify_first_wait`](Self::notify_first_wait) is called. Returns at once if `notify_first_wait` was
    /// called after this function last returned.
    pub(crate) async fn begun(&self) {
        self.first_wait.notified().await;
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.0.requests_in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_first_request_in_flight_wakes_the_pulse() {
        let demand = Demand::default();
        assert!(!demand.has_requests() && demand.begun().now_or_never().is_none());
        let first = demand.start_request();
        assert!(demand.has_requests() && demand.begun().now_or_never().is_some());
        let second = demand.start_request();
        assert!(demand.begun().now_or_never().is_none());
        drop(first);
        assert!(demand.has_requests());
        drop(second);
        assert!(!demand.has_requests());
    }
}
