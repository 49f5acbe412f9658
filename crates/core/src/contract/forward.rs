//! Macros that implement the engine traits for engines that leave all verbs to their client.

/// Implements [`Engine`](crate::Engine) for a type with the fields `profile` and `client`, by the client's functions of
/// the same names. The expression `notifications` is the future of the next notifications of the client. With the word
/// `claim_all`, the client also has this verb; without it, the engine takes one name at a time. `memos` is `none`, or
/// `client` if the client implements [`Memos`](crate::Memos), or `unless_refused` if it does and the profile may say
/// why it stores none. With `conversions: client` the client also implements [`Conversions`](crate::Conversions).
#[macro_export]
macro_rules! forward_engine {
    (@claim_all $this:ident, $claims:ident) => {{
        let _ = $claims;
        $crate::cannot_claim_all()
    }};
    (@claim_all $this:ident, $claims:ident, claim_all) => {
        Box::pin($this.client.claim_all($claims))
    };
    (@memos none, $this:ident) => {
        None
    };
    (@memos client, $this:ident) => {
        Some(&*$this.client)
    };
    (@memos unless_refused, $this:ident) => {
        $this.profile.no_memos.is_none().then_some(&*$this.client as &dyn $crate::Memos)
    };
    (@conversions $this:ident) => {
        None
    };
    (@conversions $this:ident, client) => {
        Some(&*$this.client)
    };
    ($engine:ty, $(conversions: $conversions:ident,)? memos: $memos:ident, $($claim_all:ident,)? |$client:ident| $notifications:expr) => {
        impl $crate::Engine for $engine {
            fn profile(&self) -> &$crate::Profile {
                &self.profile
            }

            fn group(&self, _: &$crate::Name) -> Option<u16> {
                None
            }

            fn claim<'a>(
                &'a self,
                claim: &'a $crate::Claim,
                how: $crate::How,
            ) -> $crate::BoxFuture<'a, Result<$crate::Answer, $crate::EngineError>> {
                Box::pin(self.client.claim(claim, how))
            }

            fn claim_all<'a>(
                &'a self,
                claims: &'a [$crate::Claim],
            ) -> $crate::BoxFuture<'a, Result<$crate::AllAnswer, $crate::EngineError>> {
                $crate::forward_engine!(@claim_all self, claims $(, $claim_all)?)
            }

            fn renew<'a>(&'a self, holds: &'a [$crate::Hold]) -> $crate::BoxFuture<'a, Vec<$crate::Renewed>> {
                Box::pin(self.client.renew(holds))
            }

            fn release<'a>(
                &'a self,
                releases: &'a [$crate::Release],
            ) -> $crate::BoxFuture<'a, Vec<$crate::Released>> {
                Box::pin(self.client.release(releases))
            }

            fn notifications(&self) -> $crate::BoxFuture<'_, Vec<$crate::Notification>> {
                let $client = &self.client;
                Box::pin($notifications)
            }

            fn memos(&self) -> Option<&dyn $crate::Memos> {
                $crate::forward_engine!(@memos $memos, self)
            }

            fn conversions(&self) -> Option<&dyn $crate::Conversions> {
                $crate::forward_engine!(@conversions self $(, $conversions)?)
            }
        }
    };
}

/// Implements [`Inspect`](crate::Inspect) for a type with the field `client`, by the client's functions of the same
/// names, except the guarantee, the diagnostics and the notices of changes, which the given functions make.
#[macro_export]
macro_rules! forward_inspect {
    ($engine:ty, guarantee by $guarantee:path $(, diagnostics by $diagnose:path)? $(, changes by $tell:path)?) => {
        impl $crate::Inspect for $engine {
            fn ping(&self) -> $crate::BoxFuture<'_, Result<(), $crate::EngineError>> {
                Box::pin(self.client.ping())
            }

            fn guarantee(&self) -> $crate::BoxFuture<'_, Result<$crate::Guarantee, $crate::EngineError>> {
                Box::pin($guarantee(&self.client))
            }

            $(
                fn diagnose(
                    &self,
                ) -> $crate::BoxFuture<'_, Result<Vec<$crate::Diagnostic>, $crate::EngineError>> {
                    Box::pin($diagnose(&self.client))
                }
            )?

            fn list<'a>(
                &'a self,
                prefix: &'a str,
            ) -> $crate::BoxFuture<'a, Result<Vec<$crate::View>, $crate::EngineError>> {
                Box::pin(self.client.list(prefix))
            }

            fn show<'a>(
                &'a self,
                name: &'a $crate::Name,
            ) -> $crate::BoxFuture<'a, Result<$crate::View, $crate::EngineError>> {
                Box::pin(self.client.show(name))
            }

            fn break_hold<'a>(
                &'a self,
                name: &'a $crate::Name,
                token: u64,
                force: bool,
            ) -> $crate::BoxFuture<'a, Result<$crate::Broken, $crate::EngineError>> {
                Box::pin(self.client.break_hold(name, token, force))
            }

            $(
                fn tell_changes<'a>(
                    &'a self,
                    watched: &'a $crate::Watched,
                    notices: &'a $crate::NoticeSender,
                ) -> $crate::BoxFuture<'a, Result<(), $crate::EngineError>> {
                    Box::pin($tell(&self.client, watched, notices))
                }
            )?
        }
    };
}
