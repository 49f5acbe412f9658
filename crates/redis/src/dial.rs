//! Opens a connection and asks what must be asked first.

use std::{pin::Pin, sync::Arc};

use leasehold_core::EngineError;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisError, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{
    config::{Address, Config},
    error::sort_connecting,
    news::{Ears, Hear},
    scripts::{Digests, TEXTS},
};

/// Commands that wait to be written: far more than are ever under way, for order is kept only if none has to wait for room.
const BUFFER: usize = 65_536;

/// A connection that somebody must drive.
pub(crate) struct Dialed {
    pub(crate) mux: MultiplexedConnection,
    pub(crate) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Connects and says who we are.
pub(crate) async fn open(config: &Config, ears: &Arc<Ears>) -> Result<Dialed, EngineError> {
    let failed = |error: std::io::Error| sort_connecting(error.into(), &config.address.to_string());
    match &config.address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
            // A request that waits for company would wait for a network round trip.
            stream.set_nodelay(true).map_err(failed)?;
            greet(stream, config, ears).await
        }
        Address::Unix(path) => greet(UnixStream::connect(path).await.map_err(failed)?, config, ears).await,
    }
}

async fn greet<S>(stream: S, config: &Config, ears: &Arc<Ears>) -> Result<Dialed, EngineError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(i64::from(config.db))
        .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &config.user {
        info = info.set_username(user);
    }
    if let Some(password) = &config.password {
        info = info.set_password(password);
    }
    let options = AsyncConnectionConfig::new()
        // Every request has its own deadline in core.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER)
        .set_push_sender(Hear(Arc::clone(ears)));
    let made = MultiplexedConnection::new_with_config(&info, stream, options).await;
    let (mux, driver) = made.map_err(|error| sort_connecting(error, &config.address.to_string()))?;
    Ok(Dialed { mux, driver: Box::pin(driver) })
}

/// Teaches the server our scripts, listens to our channel and asks for the time, in microseconds.
pub(crate) async fn prepare(
    mux: &mut MultiplexedConnection,
    channel: &str,
    address: &Address,
) -> Result<(Digests, u64), EngineError> {
    let prepared = async {
        let digests = teach(mux).await?;
        mux.subscribe(channel).await?;
        // Without it the end of a foreign lock is found by asking for it.
        let tracking = redis::cmd("CLIENT").arg(&["TRACKING", "ON", "OPTIN"]).exec_async(mux).await;
        if let Err(error) = tracking
            && error.code().is_none()
        {
            return Err(error);
        }
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(mux).await?;
        Ok((digests, seconds * 1_000_000 + micros))
    };
    prepared.await.map_err(|error: RedisError| sort_connecting(error, &address.to_string()))
}

/// Loads the scripts; what the server calls them.
pub(crate) async fn teach(mux: &mut MultiplexedConnection) -> Result<Digests, RedisError> {
    let mut load = redis::pipe();
    for text in TEXTS {
        load.cmd("SCRIPT").arg("LOAD").arg(text);
    }
    load.query_async(mux).await
}
