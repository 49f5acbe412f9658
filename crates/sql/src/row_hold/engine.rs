//! The engine on rows of other programs.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_core::{
    BoxFuture, Broken, Diagnostic, EngineError, Fault, Guarantee, HolderView, Inspect, Life, Mode, Modes,
    Name, Profile, View,
};

use super::{
    client::Client,
    server::{LONGEST_TTL, LookedRow, MAX_LISTED, RowServer},
};
use crate::database::Failed;

/// Holds in rows of another program: each hold is an open transaction on a connection of its own.
pub struct RowEngine {
    client: Arc<Client>,
    profile: Profile,
}

impl RowEngine {
    pub(crate) fn of(server: Arc<dyn RowServer>, engine: &'static str) -> Self {
        let mut profile = Profile::new(engine);
        profile.life = Life::Session;
        profile.no_conversion = Some(leasehold_core::EXCLUSIVE_ONLY);
        profile.modes = Modes::Exclusive;
        profile.stores_claims = false;
        profile.ttl = Duration::from_millis(100)..=LONGEST_TTL;
        profile.contact = Some(server.contact().clone());
        Self { client: Arc::new(Client::new(server)), profile }
    }

    fn view(&self, name: &Name, looked: LookedRow) -> View {
        let mut view = View::free(name.clone(), self.client.server.rows().described(name));
        if let LookedRow::Locked(holder) = looked {
            let (id, owner, held) = holder.map_or_else(
                || ("unknown".to_owned(), "a transaction; the server does not say whose".to_owned(), None),
                |holder| (holder.session, holder.owner, holder.held),
            );
            let foreign = !owner.starts_with("leasehold");
            let holder = HolderView::new(id, owner).times(held, None).of_session().foreign(foreign);
            view.add_holder(Mode::Exclusive, holder);
        }
        view
    }
}

leasehold_core::forward_engine!(RowEngine, memos: none, |client| client.mailbox.read());

impl Inspect for RowEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.client.inspect(|session| async move { session.ping().await }))
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.client.inspect(|session| async move { session.guarantee().await }))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(async move { Ok(self.client.server.diagnose().await?) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(self.client.inspect(move |session| async move {
            let mut views = Vec::new();
            let names = session.names(prefix).await?;
            if names.len() > MAX_LISTED {
                let message = format!(
                    "more than {MAX_LISTED} rows have names that begin with {prefix:?}: list a longer prefix"
                );
                return Err(Failed::new(Fault::Refused, message));
            }
            for name in names {
                let Ok(name) = Name::new(&name) else { continue };
                match session.look(&name).await? {
                    LookedRow::Free => {}
                    locked => views.push(self.view(&name, locked)),
                }
            }
            views.sort_by(|left, right| left.name.cmp(&right.name));
            Ok(views)
        }))
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(
            self.client.inspect(move |session| async move { Ok(self.view(name, session.look(name).await?)) }),
        )
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        _: u64,
        _: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.client.inspect(move |session| async move {
            let LookedRow::Locked(holder) = session.look(name).await? else { return Ok(Broken::NotHeld) };
            let how = self.client.server.how_to_end(holder.as_ref().map(|holder| &*holder.session));
            Err(Failed::new(Fault::Denied, format!("the hold of a row ends with its session: {how}")))
        }))
    }
}

impl fmt::Debug for RowEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowEngine").field("engine", &self.profile.engine).finish_non_exhaustive()
    }
}
