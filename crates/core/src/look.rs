//! Inspection of an engine's locks through a `Locks`.

use std::sync::Arc;

use crate::{
    Broken, Diagnostic, Engine, EngineError, Error, ErrorKind, Fault, Guarantee, Locks, Name, View,
    catch_panic,
    driver::keeper::{KeeperJob, REPORT_MARGIN, poll_once},
};

impl Locks {
    /// Whether the engine can be reached with the given credentials: one round trip, which creates nothing there. For
    /// the start of a program and for health checks, because making a `Locks` ([`builder`](crate::Locks::builder))
    /// contacts no server. Cancel safe.
    ///
    /// # Errors
    /// The engine's error. [`is_unreachable`](Error::is_unreachable) at the latest when the time for connecting
    /// ([`connect_timeout`](crate::Builder::connect_timeout)) has passed.
    pub async fn ping(&self) -> Result<(), Error> {
        let (shared, limit) = (Arc::clone(self.shared()), self.shared().connect_timeout);
        let call = move |engine: Arc<dyn Engine>| -> crate::BoxFuture<'static, _> {
            Box::pin(async move {
                if shared.profile.inline {
                    return engine.ping().await;
                }
                let timed_out = || Err(EngineError::new(Fault::Retry, format!("no answer within {limit:?}")));
                let answer = shared.with_timeout(limit.saturating_add(REPORT_MARGIN), engine.ping()).await;
                match answer.unwrap_or_else(timed_out) {
                    // A ping changes nothing, so its outcome cannot be unknown: it failed.
                    Err(error) if error.fault == Fault::Unknown => {
                        Err(EngineError::new(Fault::Retry, error.message))
                    }
                    other => other,
                }
            })
        };
        self.inspect("", call).await
    }

    /// [`ping`](Self::ping) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    #[track_caller]
    pub fn ping_blocking(&self) -> Result<(), Error> {
        self.shared().block_on(self.ping())?
    }

    /// What the engine promises, as configured now.
    ///
    /// # Errors
    /// The engine's error, if the engine had to be asked.
    pub async fn guarantee(&self) -> Result<Guarantee, Error> {
        self.inspect("", |engine| Box::pin(async move { engine.guarantee().await })).await
    }

    /// [`guarantee`](Self::guarantee) for code without an executor.
    ///
    /// # Errors
    /// As [`guarantee`](Self::guarantee).
    #[track_caller]
    pub fn guarantee_blocking(&self) -> Result<Guarantee, Error> {
        self.shared().block_on(self.guarantee())?
    }

    /// What an operator should know about the servers, their clocks and the rights of this user, beside what the
    /// [`guarantee`](Self::guarantee) says. It changes nothing on the servers.
    ///
    /// # Errors
    /// The engine's error, if the engine cannot be asked at all.
    pub async fn diagnose(&self) -> Result<Vec<Diagnostic>, Error> {
        self.inspect("", |engine| Box::pin(async move { engine.diagnose().await })).await
    }

    /// [`diagnose`](Self::diagnose) for code without an executor.
    ///
    /// # Errors
    /// As [`diagnose`](Self::diagnose).
    #[track_caller]
    pub fn diagnose_blocking(&self) -> Result<Vec<Diagnostic>, Error> {
        self.shared().block_on(self.diagnose())?
    }

    /// The names that begin with `prefix` and have a holder or a waiter.
    ///
    /// # Errors
    /// The engine's error.
    pub async fn list(&self, prefix: &str) -> Result<Vec<View>, Error> {
        let owned_prefix = prefix.to_owned();
        let views =
            self.inspect(prefix, |engine| Box::pin(async move { engine.list(&owned_prefix).await })).await?;
        Ok(views.into_iter().map(View::for_users).collect())
    }

    /// [`list`](Self::list) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    #[track_caller]
    pub fn list_blocking(&self, prefix: &str) -> Result<Vec<View>, Error> {
        self.shared().block_on(self.list(prefix))?
    }

    /// The holders and the waiters of `name`.
    ///
    /// # Errors
    /// The engine's error; [`is_invalid`](Error::is_invalid) for an invalid name.
    pub async fn show(&self, name: &str) -> Result<View, Error> {
        let valid_name = Name::new(name)?;
        let view =
            self.inspect(name, |engine| Box::pin(async move { engine.show(&valid_name).await })).await?;
        Ok(view.for_users())
    }

    /// [`show`](Self::show) for code without an executor.
    ///
    /// # Errors
    /// As [`show`](Self::show).
    #[track_caller]
    pub fn show_blocking(&self, name: &str) -> Result<View, Error> {
        self.shared().block_on(self.show(name))?
    }

    /// Ends the hold of `name` whose tokens contain `token`. With `force`, the next grant does not wait until the
    /// broken holder releases or its lease ends. Then only a fence protects the resource from the broken holder.
    ///
    /// # Errors
    /// The engine's error; [`is_denied`](Error::is_denied) where the engine cannot break this hold.
    pub async fn break_hold(&self, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
        let valid_name = Name::new(name)?;
        let call = move |engine: Arc<dyn Engine>| -> crate::BoxFuture<'static, _> {
            Box::pin(async move { engine.break_hold(&valid_name, token, force).await })
        };
        self.inspect(name, call).await
    }

    /// [`break_hold`](Self::break_hold) for code without an executor.
    ///
    /// # Errors
    /// As [`break_hold`](Self::break_hold).
    #[track_caller]
    pub fn break_hold_blocking(&self, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
        self.shared().block_on(self.break_hold(name, token, force))?
    }

    /// Runs work of an engine's crate, such as a fence, on the keeper's runtime, which has the engine's connections. So
    /// the work does not depend on the caller's executor. Errors show `subject` as the name.
    ///
    /// # Errors
    /// The errors of `work`.
    pub async fn beside_engine<T: Send + 'static>(
        &self,
        subject: &str,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, Error> {
        self.inspect(subject, |_| Box::pin(work)).await
    }

    /// Runs `call`, a call of a verb of [`Inspect`](crate::Inspect), on the keeper's runtime, which has the engine's
    /// connections; on the caller's thread if the engine answers at the first poll. Errors show `subject` as the name.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        subject: &str,
        call: impl FnOnce(Arc<dyn Engine>) -> crate::BoxFuture<'static, Result<T, EngineError>>,
    ) -> Result<T, Error> {
        self.shared().check_open()?;
        let mut answer = call(Arc::clone(&self.shared().engine));
        let engine = self.shared().profile.engine;
        let to_user_error = |error: EngineError| match Name::new(subject) {
            Ok(name) => Error::from_engine(error, &name, engine),
            Err(_) => Error::from_engine_alone(error, engine),
        };
        if self.shared().profile.inline
            && let Some(answer) = poll_once(answer.as_mut())
        {
            return answer.map_err(to_user_error);
        }
        self.shared().ensure_served()?;
        let (tx, rx) = tokio::sync::oneshot::channel();
        let pending = self.shared().pending.add();
        self.shared().queue_job(KeeperJob::Spawn(Box::pin(async move {
            let _pending = pending;
            let answer = catch_panic(answer).await;
            let _ = tx.send(answer.unwrap_or_else(|panicked| Err(panicked.into_error())));
        })));
        match rx.await {
            Ok(answer) => answer.map_err(to_user_error),
            Err(_) => {
                Err(Error::new(ErrorKind::Closed, "this Locks was closed, or its keeper's runtime is gone"))
            }
        }
    }
}
