//! Row locks and fences in transactions of `sqlx`, `tokio-postgres` and `mysql_async`, on real servers.

#![cfg(all(feature = "mysql_async", feature = "sqlx", feature = "tokio-postgres"))]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[macro_use]
mod suite;
mod commit;
mod fence;
mod mysql;
mod mysql_async;
mod once;
mod postgres;
mod tokio_postgres;
#[path = "../until/mod.rs"]
mod until;

/// Polls a future at most so many times; returns whether it was completed.
async fn polled<T>(polls: usize, work: impl Future<Output = T>) -> bool {
    let (mut work, mut left) = (std::pin::pin!(work), polls);
    std::future::poll_fn(move |context| {
        let is_done = work.as_mut().poll(context).is_ready();
        left -= 1;
        if is_done || left == 0 { std::task::Poll::Ready(is_done) } else { std::task::Poll::Pending }
    })
    .await
}
