//! The news of one client of an engine, until it reads them.

use std::{
    future::poll_fn,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::News;

/// The most news that wait for their reader. News are hints: when more come, all are replaced by
/// [`News::AskAll`], which is always true, and [`News::Doubt`] if it was among them.
pub const MAX_NEWS: usize = 4096;

/// The unread news of one client of an engine: bounded, for any number of writers and one reader.
#[derive(Default)]
pub struct Mailbox {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    news: Vec<News>,
    reader: Option<Waker>,
}

impl Mailbox {
    /// Adds a piece of news and wakes the reader.
    pub fn push(&self, news: News) {
        let reader = {
            let mut inside = self.lock();
            if inside.news.len() >= MAX_NEWS {
                let doubt = inside.news.iter().chain([&news]).any(|news| matches!(news, News::Doubt));
                inside.news.clear();
                inside.news.push(News::AskAll);
                inside.news.extend(doubt.then_some(News::Doubt));
            } else {
                inside.news.push(news);
            }
            inside.reader.take()
        };
        // Woken after the lock is free: a reader may run at once, on this thread.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// All unread news, once there are any.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn read(&self) -> Vec<News> {
        poll_fn(|context| {
            let mut inside = self.lock();
            if !inside.news.is_empty() {
                return Poll::Ready(mem::take(&mut inside.news));
            }
            let known = inside.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker()));
            if !known {
                inside.reader = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing under this lock can panic half-way through a change.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("unread", &self.lock().news.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_news_asks_for_all_and_forgets_no_doubt() {
        let mailbox = Mailbox::default();
        mailbox.push(News::Doubt);
        (0..MAX_NEWS).for_each(|_| mailbox.push(News::AskAll));
        let news = pollster::block_on(mailbox.read());
        assert!(matches!(news[..], [News::AskAll, News::Doubt]), "{news:?}");
    }
}
