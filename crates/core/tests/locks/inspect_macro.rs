//! Inspection for test engines that change only the other verbs.

/// Implements [`Inspect`](leasehold_core::Inspect) for `$engine` by the engine that `$inner` finds in `$this`.
macro_rules! inspects_by {
    ($engine:ty, |$this:ident| $inner:expr) => {
        const _: () = {
            use leasehold_core::{BoxFuture, Broken, EngineError, Guarantee, Inspect, Name, View};

            impl Inspect for $engine {
                fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
                    let $this = self;
                    $inner.ping()
                }

                fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
                    let $this = self;
                    $inner.guarantee()
                }

                fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
                    let $this = self;
                    $inner.list(prefix)
                }

                fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
                    let $this = self;
                    $inner.show(name)
                }

                fn break_hold<'a>(
                    &'a self,
                    name: &'a Name,
                    token: u64,
                    force: bool,
                ) -> BoxFuture<'a, Result<Broken, EngineError>> {
                    let $this = self;
                    $inner.break_hold(name, token, force)
                }
            }
        };
    };
}
pub(crate) use inspects_by;
