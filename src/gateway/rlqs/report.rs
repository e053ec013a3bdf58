//! Reads and validates the reports of Envoys.

use leaseway_core::types::Millis;
use leaseway_proto::envoy::quota::{
    BucketId,
    rate_limit_quota_usage_reports::{BucketQuotaUsage, BucketQuotaUsageEntry},
};
use prost::Message as _;

use crate::{
    resource_id,
    rlqs::quotas::{self, Usage},
};

/// A bucket with the id of its Envoy. The resource is `domain/key=value,key=value`, sorted by keys.
pub type Bucket = quotas::Bucket<BucketId>;

/// Why a report is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    #[error(
        "bucket_quota_usages[{at}] cannot be decoded, neither as a BucketQuotaUsage nor as a map entry with one: {why}"
    )]
    Garbled { at: usize, why: String },
    #[error("bucket_quota_usages[{0}].bucket_id is empty: set at least one key")]
    NoBucket(usize),
    #[error(
        "bucket_quota_usages[{at}].bucket_id has {entries} keys, and {bytes} bytes of keys and values; at most \
         {MAX_ENTRIES} keys and {MAX_BYTES} bytes are allowed"
    )]
    TooLarge {
        at: usize,
        entries: usize,
        /// The size of all keys and values.
        bytes: usize,
    },
}

/// The maximum number of keys of a bucket.
pub const MAX_ENTRIES: usize = 32;

/// The maximum total size of the keys and values of a bucket.
pub const MAX_BYTES: usize = 1024;

/// The maximum elapsed time in seconds. Only Envoys that were suspended report more.
const LONGEST_SECS: i64 = 3600;

/// Reads a usage, or an entry of a map of usages. The first field of an entry is a number, that of a usage a message,
/// so neither can be read as the other.
fn decode(at: usize, bytes: &[u8]) -> Result<BucketQuotaUsage, BadReport> {
    BucketQuotaUsage::decode(bytes).or_else(|_| {
        let entry = BucketQuotaUsageEntry::decode(bytes);
        let entry = entry.map_err(|why| BadReport::Garbled { at, why: why.to_string() })?;
        Ok(entry.value.unwrap_or_default())
    })
}

/// Reads the usage of the bucket at position `at` of a report.
pub fn read(domain: &str, at: usize, usage: &[u8]) -> Result<(Bucket, Usage), BadReport> {
    let usage = decode(at, usage)?;
    let id = usage.bucket_id.filter(|id| !id.bucket.is_empty()).ok_or(BadReport::NoBucket(at))?;
    let (entries, bytes) = (id.bucket.len(), id.bucket.iter().map(|(key, value)| key.len() + value.len()).sum());
    if entries > MAX_ENTRIES || bytes > MAX_BYTES {
        return Err(BadReport::TooLarge { at, entries, bytes });
    }
    let mut sorted: Vec<(&str, &str)> = id.bucket.iter().map(|(key, value)| (&**key, &**value)).collect();
    sorted.sort_unstable();
    let resource = resource_id::of(domain, sorted).into();
    let seconds = usage.time_elapsed.map_or(0, |elapsed| elapsed.seconds.clamp(0, LONGEST_SECS));
    let elapsed = Millis::from_secs(u64::try_from(seconds).unwrap_or_default());
    let usage = Usage { elapsed, allowed: usage.num_requests_allowed, denied: usage.num_requests_denied };
    Ok((Bucket { id, resource }, usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(domain: &str, at: usize, usage: &BucketQuotaUsage) -> Result<(Bucket, Usage), BadReport> {
        super::read(domain, at, &usage.encode_to_vec())
    }

    fn usage(entries: &[(&str, &str)], seconds: i64) -> BucketQuotaUsage {
        let bucket = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket }),
            time_elapsed: Some(prost_types::Duration { seconds, nanos: 999_999_999 }),
            num_requests_allowed: 7,
            num_requests_denied: u64::MAX,
        }
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let (bucket, read_as) = read("shop", 0, &usage(&[("tier", "gold"), ("route", "a/b")], 5)).expect("a bucket");
        assert_eq!(&*bucket.resource, "shop/route=a%2Fb,tier=gold");
        assert_eq!(read_as, Usage { elapsed: Millis(5_000), allowed: 7, denied: u64::MAX });
        let (same, _) = read("shop", 0, &usage(&[("route", "a/b"), ("tier", "gold")], 5)).expect("a bucket");
        assert_eq!(same, bucket);
    }

    #[test]
    fn an_entry_of_a_map_is_read_as_its_value() {
        let alone = usage(&[("route", "cart")], 5);
        for key in [0, 1, 0x0a, 0x12, u64::MAX] {
            let entry = BucketQuotaUsageEntry { key, value: Some(alone.clone()) };
            assert_eq!(super::read("d", 0, &entry.encode_to_vec()), read("d", 0, &alone), "{key}");
        }
        let empty = BucketQuotaUsageEntry { key: 7, value: None };
        assert_eq!(super::read("d", 2, &empty.encode_to_vec()), Err(BadReport::NoBucket(2)));
        let garbled = super::read("d", 5, b"\x0a\xff").expect_err("truncated");
        assert!(garbled.to_string().starts_with("bucket_quota_usages[5] cannot be decoded"), "{garbled}");
    }

    #[test]
    fn invalid_reports_are_refused() {
        let none = BucketQuotaUsage { bucket_id: None, ..usage(&[], 0) };
        assert_eq!(read("d", 3, &none), Err(BadReport::NoBucket(3)));
        assert_eq!(read("d", 4, &usage(&[], 0)), Err(BadReport::NoBucket(4)));
        let long = "x".repeat(MAX_BYTES);
        let expected = BadReport::TooLarge { at: 0, entries: 1, bytes: MAX_BYTES + 1 };
        assert_eq!(read("d", 0, &usage(&[("k", &long)], 0)), Err(expected));
        let keys: Vec<String> = (0..=MAX_ENTRIES).map(|n| n.to_string()).collect();
        let many: Vec<_> = keys.iter().map(|key| (&**key, "")).collect();
        assert!(matches!(read("d", 0, &usage(&many, 0)), Err(BadReport::TooLarge { entries: 33, .. })));
        for (said, read_as) in [(-1, 0), (i64::MIN, 0), (i64::MAX, 3_600_000)] {
            assert_eq!(read("d", 0, &usage(&[("k", "v")], said)).expect("a bucket").1.elapsed, Millis(read_as));
        }
    }
}
