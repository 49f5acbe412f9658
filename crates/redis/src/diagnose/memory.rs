//! The memory of the server: how full it is, and whether keys were evicted. The guarantee reports a policy that evicts.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;

const MEMORY_ID: &str = "redis-memory";
const EVICTION_ID: &str = "redis-eviction";

/// From this share of its limit on, the memory counts as nearly full, in percent.
const NEARLY_FULL: u64 = 90;

pub(super) fn judge(report: &ServerReport) -> Vec<Diagnostic> {
    eviction(report).into_iter().chain(memory(report)).collect()
}

/// Whether keys were evicted.
fn eviction(report: &ServerReport) -> Option<Diagnostic> {
    let (evicted, policy) = (report.number("evicted_keys")?, report.info("maxmemory_policy"));
    if evicted > 0 {
        return Some(Diagnostic::new(
            EVICTION_ID,
            Severity::Warning,
            format!("{evicted} keys were evicted since the server was started, perhaps locks among them"),
            "set maxmemory-policy noeviction, or give the locks a server of their own; \
                CONFIG RESETSTAT starts the count anew",
        ));
    }
    let can_evict = report.number("maxmemory") != Some(0) && policy != "noeviction";
    (!can_evict).then(|| Diagnostic::good(EVICTION_ID, "no key was evicted, and none can be"))
}

/// How full the memory is.
fn memory(report: &ServerReport) -> Option<Diagnostic> {
    let (used, limit) = (report.number("used_memory")?, report.number("maxmemory")?);
    if limit == 0 {
        let (used, all) = (report.number("used_memory_rss")?, report.number("total_system_memory")?);
        if all == 0 || percent(used, all) < NEARLY_FULL {
            let found = format!("it uses {}, without a limit (maxmemory 0)", size(used));
            return Some(Diagnostic::good(MEMORY_ID, found));
        }
        return Some(Diagnostic::new(
            MEMORY_ID,
            Severity::Warning,
            format!(
                "it uses {} % of the memory of its machine, without a limit (maxmemory 0)",
                percent(used, all)
            ),
            "set maxmemory, so that a full server refuses claims in place of being killed",
        ));
    }
    // The server does not count the buffers of its replicas against the limit.
    let used = used.saturating_sub(report.number("mem_not_counted_for_evict").unwrap_or(0));
    let found = format!("it uses {} of {} (maxmemory)", size(used), size(limit));
    if percent(used, limit) < NEARLY_FULL {
        return Some(Diagnostic::good(MEMORY_ID, found));
    }
    let advice = "raise maxmemory, or remove data";
    let (severity, effect) = match report.info("maxmemory_policy") {
        "noeviction" if used > limit => (Severity::Broken, ": it refuses claims"),
        "noeviction" => (Severity::Warning, ": a full server refuses claims"),
        _ => (Severity::Warning, ": a full server evicts keys"),
    };
    Some(Diagnostic::new(MEMORY_ID, severity, found + effect, advice))
}

/// The share of a part, in whole percent.
fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole.max(1)
}

/// A size for people.
fn size(bytes: u64) -> String {
    match bytes {
        ..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / (1024 * 1024)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(changes: &[(&str, &str)]) -> Vec<(&'static str, Severity)> {
        let found = judge(&ServerReport::example(changes));
        found.into_iter().map(|found| (found.id, found.severity)).collect()
    }

    #[test]
    fn a_full_server_is_reported() {
        let of_memory = |changes: &[(&str, &str)]| severities(changes).last().unwrap().1;
        assert_eq!(of_memory(&[]), Severity::Good);
        assert_eq!(of_memory(&[("used_memory", "950000")]), Severity::Warning);
        assert_eq!(of_memory(&[("used_memory", "1200000")]), Severity::Broken);
        let of_replicas = [("used_memory", "1200000"), ("mem_not_counted_for_evict", "800000")];
        assert_eq!(of_memory(&of_replicas), Severity::Good);
        let evicts = [("used_memory", "1200000"), ("maxmemory_policy", "allkeys-lru")];
        assert_eq!(of_memory(&evicts), Severity::Warning);
        let no_limit = ("maxmemory", "0");
        assert_eq!(of_memory(&[no_limit]), Severity::Good);
        assert_eq!(of_memory(&[no_limit, ("used_memory_rss", "8500000")]), Severity::Warning);
    }

    #[test]
    fn evicted_keys_are_reported() {
        let good = (EVICTION_ID, Severity::Good);
        assert_eq!(severities(&[])[0], good);
        assert_eq!(severities(&[("maxmemory", "0"), ("maxmemory_policy", "allkeys-lru")])[0], good);
        assert_eq!(severities(&[("evicted_keys", "3")])[0], (EVICTION_ID, Severity::Warning));
        let found = severities(&[("maxmemory_policy", "volatile-ttl")]);
        assert_eq!(found, [(MEMORY_ID, Severity::Good)], "the guarantee reports the policy");
    }
}
