//! News through the faulty wire.

use std::mem;

use leasehold_core::News;

use super::{Fault, Faulty};
use crate::decorators::Verb;

impl Faulty {
    /// The next batch that gets through. Nothing is lost by dropping the future: between taking a batch and giving it
    /// away, or putting it by, there is no await.
    pub(super) async fn next_news(&self) -> Vec<News> {
        loop {
            let ready = self.take_ready();
            if !ready.is_empty() {
                return ready;
            }
            let batch = tokio::select! {
                biased;
                batch = self.inner.news() => batch,
                () = self.bell.notified() => continue,
            };
            if self.state().gone {
                continue;
            }
            let fault = self.state().plan.draw(Verb::News);
            if fault == Some(Fault::SessionGone) {
                self.lose_session().await;
            } else if let Some(batch) = self.pass_news(batch, fault) {
                return batch;
            }
        }
    }

    fn take_ready(&self) -> Vec<News> {
        let mut state = self.state();
        if state.gone { Vec::new() } else { mem::take(&mut state.news.ready) }
    }

    fn pass_news(&self, mut batch: Vec<News>, fault: Option<Fault>) -> Option<Vec<News>> {
        let news = &mut self.state().news;
        match fault {
            Some(Fault::RequestLost | Fault::ReplyLost | Fault::SessionGone) => return None,
            Some(Fault::Late) => {
                news.late.extend(batch);
                return None;
            }
            Some(Fault::Reordered) => {
                news.overtaken.extend(batch);
                return None;
            }
            Some(Fault::Duplicated) => news.ready.extend(batch.iter().cloned()),
            None => {}
        }
        batch.append(&mut news.overtaken);
        Some(batch)
    }
}
