//! The listener and its connections: how many, how long, and how they end.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use leasehold_ops::{
    audit::{Audit, Journal},
    series::NameFilter,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    guard::Peer,
    looker, router,
    settings::{Settings, StartError},
    state::{EngineState, MAX_BREAKS, Shared},
    tls,
};

/// How many connections there are at the same time. More wait in the queue of the operating system.
const MAX_CONNECTIONS: usize = 512;
/// How long a client may take for the headers of a request, or for its TLS handshake.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);
/// The largest headers of a request, in bytes.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// The pause after a failed `accept`, as when no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The threads that serve requests. A request costs little; the looks run on threads of their own.
const THREADS: usize = 2;

/// A server that runs. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts to listen and to look at the engines.
    ///
    /// # Errors
    /// The settings are not safe, or a file or the address cannot be used.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        settings.check()?;
        let system = |what: &str, error: io::Error| StartError::System(format!("{what}: {error}"));
        let audit = match settings.audit.as_deref().filter(|_| settings.allow_break) {
            Some(path) => {
                let audit = Audit::open(path, Journal::of_system());
                let unusable =
                    |error| StartError::File(format!("the audit file {}: {error}", path.display()));
                Some(audit.map_err(unusable)?)
            }
            None => None,
        };
        let acceptor = settings.tls.as_ref().map(tls::acceptor).transpose()?;
        let what = format!("cannot listen on {}", settings.listen);
        let listener = TcpListener::bind(settings.listen).map_err(|error| system(&what, error))?;
        let address = listener.local_addr().map_err(|error| system(&what, error))?;
        listener.set_nonblocking(true).map_err(|error| system(&what, error))?;
        let access = settings.access(address)?;
        let engines = settings.engines.into_iter().map(EngineState::new);
        let mut shared = Shared::new(engines.collect(), access, audit);
        shared.metrics_names = NameFilter::new(settings.metrics_names);
        let shared = Arc::new(shared);
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("lh-serve")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| system("cannot start threads", error))?;
        {
            let _entered = runtime.enter();
            let listener =
                tokio::net::TcpListener::from_std(listener).map_err(|error| system(&what, error))?;
            for engine in 0..shared.engines.len() {
                runtime.spawn(looker::look(Arc::clone(&shared), engine));
                runtime.spawn(looker::look_at_health(Arc::clone(&shared), engine));
            }
            runtime.spawn(looker::look_at_waits(Arc::clone(&shared)));
            runtime.spawn(accept(Arc::clone(&shared), listener, acceptor));
        }
        Ok(Self { address, shared, runtime: Some(runtime) })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.shared.access.is_encrypted
    }

    /// Refuses new requests, ends the pages that follow changes, and waits, for at most `limit`, until all breaks that
    /// have begun are recorded.
    pub fn stop(mut self, limit: Duration) {
        self.shared.stopping.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            let breaks = Arc::clone(&self.shared.breaks);
            runtime.block_on(async move {
                let _ = timeout(limit, breaks.acquire_many(MAX_BREAKS)).await;
            });
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Accepts connections until the server stops.
async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener, acceptor: Option<TlsAcceptor>) {
    let router = router::router(Arc::clone(&shared));
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut stopping = shared.stopping.subscribe();
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (shared, router, acceptor) = (Arc::clone(&shared), router.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let _permit = permit;
                    if let Err(error) = connection(&shared, router, acceptor, stream, peer).await {
                        tracing::debug!("a connection of {peer} failed: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    shared: &Shared,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<(), BoxError> {
    // Events are small, and each is to be seen at once.
    stream.set_nodelay(true)?;
    let router = router.layer(Extension(Peer(peer)));
    match acceptor {
        None => requests(shared, router, stream).await,
        Some(acceptor) => {
            let stream = timeout(CLIENT_LIMIT, acceptor.accept(stream)).await??;
            requests(shared, router, stream).await
        }
    }
}

/// Answers the requests of a connection until it ends, or until the server stops and the request that goes on is
/// answered.
async fn requests(
    shared: &Shared,
    router: Router,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(), BoxError> {
    let mut stopping = shared.stopping.subscribe();
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(CLIENT_LIMIT)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    tokio::select! {
        result = connection.as_mut() => return Ok(result?),
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}
