//! The names of the conformance suite for a table whose locks have numbers: an engine that gives each name a number.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Engine, EngineError, Guarantee, Hold, How, Inspect, Name,
    Notification, Profile, Release, Released, Renewed, View,
};

/// The numbers of all names, for all clients.
#[derive(Clone, Default)]
pub(crate) struct Numbers(Arc<Mutex<BTreeMap<Name, Name>>>);

impl Numbers {
    fn number(&self, name: &Name) -> Name {
        let mut numbers = self.0.lock().unwrap();
        let next = numbers.len() + 1;
        numbers.entry(name.clone()).or_insert_with(|| Name::new(&next.to_string()).unwrap()).clone()
    }

    /// The view of a number as that of its name; `None` for a number without a name.
    fn named(&self, view: View) -> Option<View> {
        let numbers = self.0.lock().unwrap();
        let (name, _) = numbers.iter().find(|(_, number)| **number == view.name)?;
        let mut view = view;
        view.name = name.clone();
        Some(view)
    }
}

/// The engine.
pub(crate) struct Numbered<E> {
    pub(crate) engine: Arc<E>,
    pub(crate) numbers: Numbers,
}

impl<E: Engine> Engine for Numbered<E> {
    fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.engine.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let claim = Claim { name: self.numbers.number(&claim.name), ..claim.clone() };
            self.engine.claim(&claim, how).await
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move {
            let numbered = |claim: &Claim| Claim { name: self.numbers.number(&claim.name), ..claim.clone() };
            let claims: Vec<Claim> = claims.iter().map(numbered).collect();
            self.engine.claim_all(&claims).await
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            let holds: Vec<Hold> = holds
                .iter()
                .map(|hold| Hold { name: self.numbers.number(&hold.name), ..hold.clone() })
                .collect();
            self.engine.renew(&holds).await
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let numbered =
                |release: &Release| Release { name: self.numbers.number(&release.name), ..release.clone() };
            let releases: Vec<Release> = releases.iter().map(numbered).collect();
            self.engine.release(&releases).await
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.engine.notifications()
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        None
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        None
    }
}

impl<E: Engine> Inspect for Numbered<E> {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.engine.guarantee()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let views = self.engine.list("").await?.into_iter().filter_map(|view| self.numbers.named(view));
            let mut views: Vec<View> = views.filter(|view| view.name.as_str().starts_with(prefix)).collect();
            views.sort_by(|left, right| left.name.cmp(&right.name));
            Ok(views)
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move {
            let view = self.engine.show(&self.numbers.number(name)).await?;
            Ok(self.numbers.named(view).unwrap())
        })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move { self.engine.break_hold(&self.numbers.number(name), token, force).await })
    }
}
