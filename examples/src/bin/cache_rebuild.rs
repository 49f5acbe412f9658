//! A page in Redis over a row of PostgreSQL. Of all readers that miss the page, on all machines, one builds it. A write
//! evicts the page and leaves the version of the row in its place for a minute: Redis refuses a page of an earlier
//! version, so a builder that was slow does not replace news by old data. For that, the server must not evict keys by
//! itself (`maxmemory-policy noeviction`, or enough memory).
//!
//! `cache_rebuild redis://127.0.0.1:6379 postgres://app@127.0.0.1/shop`

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use leasehold::Locks;
use redis::aio::MultiplexedConnection;
use sqlx::PgPool;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Stores a version, and the page if there is one, unless a later version is stored. A version stays for a minute,
/// longer than a builder may take.
const PUT: &str = "
    if tonumber(redis.call('HGET', KEYS[1], 'version') or 0) > tonumber(ARGV[1]) then return 0 end
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'version', ARGV[1], unpack(ARGV, 2))
    return redis.call('PEXPIRE', KEYS[1], 60000)";
const LONGEST_BUILD: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Shop {
    locks: Locks,
    redis: MultiplexedConnection,
    pool: PgPool,
}

impl Shop {
    async fn page(&self, item: i64) -> Result<String, Failure> {
        if let Some(page) = self.cached(item).await? {
            return Ok(page);
        }
        let build = self.locks.mutex(format!("build-{item}")).max_hold(LONGEST_BUILD);
        let page = build.run(async |_| {
            // The second look: another reader may have built the page while this one waited for the lock.
            if let Some(page) = self.cached(item).await? {
                return Ok::<_, Failure>(page);
            }
            let (version, page) = self.build(item).await?;
            self.put(item, version, &["page", &page]).await?;
            Ok(page)
        });
        page.await?
    }

    async fn set_price(&self, item: i64, price: i64) -> Result<(), Failure> {
        let update =
            "UPDATE cached_items SET price = $2, version = version + 1 WHERE item = $1 RETURNING version";
        let version = sqlx::query_scalar(update).bind(item).bind(price).fetch_one(&self.pool).await?;
        // After the commit. If this process dies in between, the old page stays until it expires.
        self.put(item, version, &[]).await.map(drop)
    }

    async fn cached(&self, item: i64) -> Result<Option<String>, Failure> {
        let mut get = redis::cmd("HGET");
        Ok(get.arg(format!("page-{item}")).arg("page").query_async(&mut self.redis.clone()).await?)
    }

    /// Returns whether the page was stored.
    async fn put(&self, item: i64, version: i64, page: &[&str]) -> Result<bool, Failure> {
        let mut put = redis::cmd("EVAL");
        put.arg(PUT).arg(1).arg(format!("page-{item}")).arg(version).arg(page);
        Ok(put.query_async(&mut self.redis.clone()).await?)
    }

    /// The slow query.
    async fn build(&self, item: i64) -> Result<(i64, String), Failure> {
        BUILDS.fetch_add(1, Ordering::SeqCst);
        let row = sqlx::query_as("SELECT version, price FROM cached_items, pg_sleep(0.1) WHERE item = $1");
        let (version, price): (i64, i64) = row.bind(item).fetch_one(&self.pool).await?;
        Ok((version, format!("item {item} costs {price}")))
    }
}

static BUILDS: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cache, data] = &arguments[..] else { return Err("usage: cache_rebuild REDIS POSTGRES".into()) };
    let redis = redis::Client::open(cache.as_str())?.get_multiplexed_async_connection().await?;
    let shop = Shop { locks: Locks::connect(cache)?, redis, pool: PgPool::connect(data).await? };
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS cached_items (item bigint PRIMARY KEY, price bigint, version bigint);
        INSERT INTO cached_items VALUES (4711, 0, 0) ON CONFLICT DO NOTHING",
    )
    .execute(&shop.pool)
    .await?;
    shop.set_price(4711, 10).await?;
    let readers: Vec<_> = (0..20).map(|_| shop.clone()).collect();
    let readers = readers.into_iter().map(|shop| tokio::spawn(async move { shop.page(4711).await }));
    for reader in readers.collect::<Vec<_>>() {
        assert_eq!(reader.await??, "item 4711 costs 10");
    }
    println!("20 readers, pages built: {}", BUILDS.load(Ordering::SeqCst));
    // A builder that reads the row before a write and stores its page after it:
    let (version, page) = shop.build(4711).await?;
    shop.set_price(4711, 20).await?;
    let is_stored = shop.put(4711, version, &["page", &page]).await?;
    println!("the late page is {}", if is_stored { "stored" } else { "refused" });
    println!("{}", shop.page(4711).await?);
    Ok(())
}
