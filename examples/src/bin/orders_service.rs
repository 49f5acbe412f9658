//! A web service for orders (axum): `POST /orders/{id}`. A click that is repeated, also on another machine, gets the
//! receipt of the first one; another card for the same order is refused. The card is charged one time. Start several of
//! it with one URL:
//!
//! `orders_service redis://127.0.0.1:6379 127.0.0.1:8080`

use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use leasehold::{Locks, OnceError, Token};
use sha2::{Digest, Sha256};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address] = &arguments[..] else { return Err("usage: orders_service URL ADDRESS".into()) };
    let locks = Locks::connect(url)?;
    let service = Router::new().route("/orders/{id}", post(order)).with_state(locks.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, service).with_graceful_shutdown(stop).await?;
    // No request is under way any more: what is still to be released is released now.
    locks.close(Duration::from_secs(10)).await;
    Ok(())
}

async fn order(
    State(locks): State<Locks>,
    Path(id): Path<String>,
    card: String,
) -> Result<String, (StatusCode, String)> {
    let order = locks.once(format!("order-{id}")).keep(Duration::from_secs(24 * 3600));
    let order = order.digest(Sha256::digest(&card).into());
    let run = order.run_within(Duration::from_secs(5), async move |guard| charge(&card, guard.token()).await);
    // In a task of its own: when the client hangs up, the server drops this handler, but not a half-done charge.
    match tokio::spawn(run).await.map_err(|panic| (StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()))? {
        Ok(ran) => Ok(String::from_utf8_lossy(ran.bytes()).into_owned()),
        Err(OnceError::Work(declined)) => Err((StatusCode::PAYMENT_REQUIRED, declined)),
        Err(OnceError::NotBegun(error)) if error.is_taken() => Err((StatusCode::CONFLICT, error.to_string())),
        Err(OnceError::NotBegun(error)) if error.is_invalid() => {
            Err((StatusCode::BAD_REQUEST, error.to_string()))
        }
        Err(OnceError::NotBegun(error)) if error.is_mismatch() => {
            Err((StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
        }
        // The engine cannot be reached, or the lock was lost: the client may send the order again.
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// Charges the card. A real one sends the order's id and the token along: the bank refuses an order that it has charged
/// already (this program can be killed between the charge and its record), and a smaller token than it has seen.
async fn charge(card: &str, token: Token) -> Result<String, String> {
    println!("charging {card}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("charged {card}");
    if card == "empty" {
        Err("the card was declined".into())
    } else {
        Ok(format!("receipt {}", token.number))
    }
}
