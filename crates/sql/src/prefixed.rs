//! An engine whose names are stored with a prefix, so that programs that use the same tables have names of their own.

use std::{fmt, sync::Arc};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Conversions, Diagnostic, Engine, EngineError, Error, Fault,
    Followed, Guarantee, Hold, How, Inspect, MAX_NAME_BYTES, Memo, MemoWrite, Memos, Name, NoticeSender,
    Notification, Profile, Release, Released, Renewed, Upgraded, View, Watched, Written,
};

/// The longest prefix, in bytes. A name and its prefix have up to 512 bytes together.
const MAX_PREFIX_BYTES: usize = 128;

/// An engine that stores every name with a prefix. Engines with different prefixes do not exclude each other, unless
/// one prefix is the beginning of the other.
pub struct Prefixed {
    engine: Arc<dyn Engine>,
    prefix: String,
}

impl Prefixed {
    /// The same engine with the prefix. `list` returns only names with this prefix, and without it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for a prefix with control characters or of more than 128 bytes.
    pub fn new(engine: Arc<dyn Engine>, prefix: &str) -> Result<Self, Error> {
        if prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
            return Err(Error::misconfigured(format!(
                "the prefix of names has more than {MAX_PREFIX_BYTES} bytes, or control characters"
            )));
        }
        Ok(Self { engine, prefix: prefix.to_owned() })
    }

    fn inner_memos(&self) -> Result<&dyn Memos, EngineError> {
        self.engine.memos().ok_or_else(|| EngineError::new(Fault::Internal, "the engine has no memos"))
    }

    fn inner_conversions(&self) -> Result<&dyn Conversions, EngineError> {
        let error = || EngineError::new(Fault::Internal, "the engine has no conversions");
        self.engine.conversions().ok_or_else(error)
    }

    /// The name as it is stored.
    fn stored(&self, name: &Name) -> Result<Name, EngineError> {
        Name::new(&format!("{}{name}", self.prefix)).map_err(|_| {
            let most = MAX_NAME_BYTES - self.prefix.len();
            EngineError::new(
                Fault::Misconfigured,
                format!("the name has more than the {most} bytes that its prefix leaves"),
            )
        })
    }

    /// The name without the prefix; `None` for a name that has another prefix, or only the prefix.
    fn shown(&self, stored: &Name) -> Option<Name> {
        stored.as_str().strip_prefix(&self.prefix).and_then(|name| Name::new(name).ok())
    }

    /// The notification for the name without the prefix.
    fn notification(&self, mut notification: Notification) -> Option<Notification> {
        if let Notification::Granted { name, .. }
        | Notification::Recheck { name, .. }
        | Notification::Lost { name, .. }
        | Notification::Memo { name } = &mut notification
        {
            *name = self.shown(name)?;
        }
        Some(notification)
    }

    /// The view of the name without the prefix. Its key is the name as it is stored.
    fn view(&self, mut view: View) -> Option<View> {
        view.name = self.shown(&view.name)?;
        Some(view)
    }
}

impl Engine for Prefixed {
    fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.stored(name).ok().and_then(|name| self.engine.group(&name))
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let claim = Claim { name: self.stored(&claim.name)?, ..claim.clone() };
            self.engine.claim(&claim, how).await
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move {
            let stored = |claim: &Claim| Ok(Claim { name: self.stored(&claim.name)?, ..claim.clone() });
            let claims = claims.iter().map(stored).collect::<Result<Vec<_>, EngineError>>()?;
            self.engine.claim_all(&claims).await
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            let stored = |hold: &Hold| Ok(Hold { name: self.stored(&hold.name)?, ..hold.clone() });
            match holds.iter().map(stored).collect::<Result<Vec<_>, EngineError>>() {
                Ok(holds) => self.engine.renew(&holds).await,
                // No hold has such a name, because its claim had the same error.
                Err(error) => {
                    let unknown = || EngineError::new(error.fault, error.message.clone());
                    holds.iter().map(|_| Renewed::Unknown(unknown())).collect()
                }
            }
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let stored = |release: &Release| {
                self.stored(&release.name).ok().map(|name| Release { name, ..release.clone() })
            };
            let stored: Vec<_> = releases.iter().map(stored).collect();
            let known: Vec<_> = stored.iter().flatten().cloned().collect();
            let mut released = self.engine.release(&known).await.into_iter();
            // A claim of a name that is too long was refused: it has left nothing.
            let answer = |release: &Option<Release>| match release {
                Some(_) => released.next().unwrap_or(Released::NotThere),
                None => Released::NotThere,
            };
            stored.iter().map(answer).collect()
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            let notifications = self.engine.notifications().await;
            notifications.into_iter().filter_map(|notification| self.notification(notification)).collect()
        })
    }

    fn memos(&self) -> Option<&dyn Memos> {
        self.engine.memos().map(|_| self as &dyn Memos)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        self.engine.conversions().map(|_| self as &dyn Conversions)
    }
}

impl Memos for Prefixed {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(async move {
            let name = self.stored(name)?;
            self.inner_memos()?.read(&name).await
        })
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move {
            let write = MemoWrite { name: self.stored(&write.name)?, ..write.clone() };
            self.inner_memos()?.write(&write).await
        })
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        self.engine.memos()?.follow(&self.stored(name).ok()?)
    }
}

impl Conversions for Prefixed {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let stored = |hold: &Hold| Ok(Hold { name: self.stored(&hold.name)?, ..hold.clone() });
            match stored(hold).and_then(|hold| Ok((hold, self.inner_conversions()?))) {
                Ok((hold, conversions)) => conversions.downgrade(&hold).await,
                Err(error) => Renewed::Unknown(error),
            }
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            let name = self.stored(&hold.name)?;
            let (hold, claim) =
                (Hold { name: name.clone(), ..hold.clone() }, Claim { name, ..claim.clone() });
            self.inner_conversions()?.upgrade(&hold, &claim).await
        })
    }
}

impl Inspect for Prefixed {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.engine.guarantee()
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        self.engine.diagnose()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let views = self.engine.list(&format!("{}{prefix}", self.prefix)).await?;
            Ok(views.into_iter().filter_map(|view| self.view(view)).collect())
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move {
            let mut view = self.engine.show(&self.stored(name)?).await?;
            view.name = name.clone();
            Ok(view)
        })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move { self.engine.break_hold(&self.stored(name)?, token, force).await })
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            let stored = match watched {
                Watched::Prefix(prefix) => Watched::Prefix(format!("{}{prefix}", self.prefix)),
                Watched::Name(name) => Watched::Name(self.stored(name)?),
            };
            self.engine.tell_changes(&stored, notices).await
        })
    }
}

impl fmt::Debug for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefixed")
            .field("engine", &self.engine.profile().engine)
            .field("prefix", &self.prefix)
            .finish()
    }
}
