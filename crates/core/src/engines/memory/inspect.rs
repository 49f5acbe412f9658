//! Inspection of a store.

use super::{MemoryEngine, diagnose::diagnose};
use crate::{
    BoxFuture, Broken, Diagnostic, EngineError, Guarantee, Inspect, Level, Loss, Name, NoticeSender,
    Notification, View, Watched,
};

impl MemoryEngine {
    fn list_now(&self, prefix: &str) -> Vec<View> {
        let mut views = Vec::new();
        self.store.sweep_all(|shard, now| {
            let used_names = shard
                .names
                .iter()
                .filter(|(name, lock_state)| name.as_str().starts_with(prefix) && lock_state.is_used());
            views.extend(used_names.map(|(name, lock_state)| lock_state.view(name, name.as_str(), now)));
        });
        views.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        views
    }

    fn show_now(&self, name: &Name) -> View {
        self.store.step(name, |lock_state, step| {
            lock_state.settle(step);
            lock_state.view(name, name.as_str(), step.now)
        })
    }

    fn break_now(&self, name: &Name, token: u64, force: bool) -> Broken {
        let Some(broken) =
            self.store.step(name, |lock_state, step| lock_state.break_hold(token, force, step))
        else {
            return Broken::NotHeld;
        };
        if let Some(holder) = broken.client.and_then(|client| client.upgrade()) {
            holder.push(Notification::Lost { name: name.clone(), id: broken.id, loss: Loss::Broken });
        }
        self.store.followers.notify(name);
        self.store.views.tell(name);
        Broken::Done
    }
}

impl Inspect for MemoryEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        let notes = [
            "Excludes only within this process: other processes have locks of their own.",
            "Everything is lost when the process ends.",
        ];
        Box::pin(async move { Ok(Guarantee::new(Level::LeaseBounded, &notes)) })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(async move { Ok(vec![diagnose()]) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move { Ok(self.list_now(prefix)) })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move { Ok(self.show_now(name)) })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move { Ok(self.break_now(name, token, force)) })
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(self.store.views.tell_view(watched, notices))
    }
}
