//! Keys of PostgreSQL: one number of 64 bits, or two of 32 bits.

use blake2::{Blake2b, digest::array::AssocArraySize};
use hkdf::Hkdf;
use leasehold_core::Error;
use md5::Md5;
use sha1_smol::Sha1;
use sha2::{Digest, Sha256};

use super::{Key, LockKey, flyway_table, java_hash, own_hash, rails_number, two_numbers, unfit};
use crate::database::Failed;

/// The values of the URL option `lock_key`, beside those with numbers in them.
const KNOWN: [(&str, LockKey); 13] = [
    ("bigint", LockKey::Bigint(None)),
    ("int,int", LockKey::Ints(None)),
    ("advisory-lock", LockKey::AdvisoryLock),
    ("dotnet", LockKey::Dotnet),
    ("flyway", LockKey::Flyway),
    ("pals", LockKey::Pals),
    ("rails", LockKey::Rails),
    ("sha256be", LockKey::Sha256Be),
    ("sha256le", LockKey::Sha256Le),
    ("sqlalchemy-dlock", LockKey::SqlalchemyDlock),
    ("sqlx", LockKey::Sqlx),
    ("symfony", LockKey::Symfony),
    ("tooz", LockKey::Tooz),
];

/// BLAKE2b with a result of eight bytes.
type Blake2bOf8Bytes = Blake2b<<[u8; 8] as AssocArraySize>::Size>;

/// The most characters of a name that DistributedLock stores in the key itself, and the bits of each.
const DOTNET_ASCII: usize = 9;
const DOTNET_ASCII_BITS: u32 = 7;
/// `Flyway` in ASCII.
const FLYWAY: i64 = 0x466C_7977_6179;

impl LockKey {
    /// The derivation that a URL of PostgreSQL chooses by this value of its option `lock_key`.
    ///
    /// # Errors
    /// `is_misconfigured` if the value is unknown. The error does not show the value.
    pub(crate) fn of_postgres(text: &str) -> Result<Self, Error> {
        Self::parse(text, &KNOWN)
    }

    /// The key of this name on PostgreSQL.
    ///
    /// # Errors
    /// If the derivation has no key for the name; the message says what names it has.
    pub(crate) fn postgres(self, name: &str) -> Result<Key, Failed> {
        let bytes = name.as_bytes();
        Ok(match self {
            Self::Own => own_key(&own_hash("lock", &[bytes])),
            Self::Bigint(number) => Key::Bigint(number.or_else(|| name.parse().ok()).ok_or_else(|| {
                unfit("with lock_key=bigint a name is a number of 64 bits, such as 4711: lock_key=bigint:N gives all names the number N")
            })?),
            Self::Ints(numbers) => {
                let (first, second) = numbers.or_else(|| two_numbers(name)).ok_or_else(|| {
                    unfit("with lock_key=int,int a name is two numbers of 32 bits, such as 7,11: lock_key=int,int:A,B gives all names the numbers A and B")
                })?;
                Key::Ints(first, second)
            }
            Self::AdvisoryLock => {
                let hash = Sha256::digest(bytes);
                Key::Ints(little_endian_int(&hash), little_endian_int(&hash[4..]))
            }
            Self::Dotnet => dotnet(name),
            Self::Flyway => Key::Bigint(FLYWAY + i64::from(java_hash(&flyway_table(name, '"')?))),
            Self::Pals => Key::Bigint(sha1_key(bytes)),
            Self::Rails => Key::Bigint(rails_number(name)),
            Self::Sha256Be => Key::Bigint(big_endian(&Sha256::digest(bytes))),
            Self::Sha256Le => Key::Bigint(little_endian(&Sha256::digest(bytes))),
            Self::SqlalchemyDlock => Key::Bigint(little_endian(&Blake2bOf8Bytes::digest(bytes))),
            Self::Sqlx => Key::Bigint(sqlx(bytes)),
            Self::Symfony => Key::Bigint(crc32fast::hash(bytes).into()),
            Self::Tooz => {
                let hash = Md5::digest(bytes);
                Key::Ints(hash[0].into(), hash[1].into())
            }
            Self::Name => return Err(unfit("PostgreSQL knows locks by numbers: lock_key=name is for MySQL")),
        })
    }

    /// The key of one of the permits of this name; `permit` counts from 0.
    ///
    /// # Errors
    /// With the derivation of another program: no other program divides a key into permits.
    pub(crate) fn postgres_permit(self, name: &str, permit: u32) -> Result<Key, Failed> {
        match self {
            Self::Own => {
                let hash = own_hash("permit", &[&permit.to_be_bytes(), name.as_bytes()]);
                Ok(own_key(&hash))
            }
            _ => Err(unfit("permits need several keys for each name: they are not possible with lock_key")),
        }
    }
}

impl Key {
    /// The columns `classid`, `objid` and `objsubid` of the lock in `pg_locks`.
    pub(crate) fn pg_locks(&self) -> Option<(u32, u32, i16)> {
        match *self {
            Self::Bigint(key) => Some(((key >> 32).cast_unsigned() as u32, key.cast_unsigned() as u32, 1)),
            Self::Ints(first, second) => Some((first.cast_unsigned(), second.cast_unsigned(), 2)),
            #[cfg(feature = "mysql")]
            Self::Name(_) => None,
        }
    }
}

/// leasehold's own key with this hash.
pub(super) fn own_key(hash: &[u8; 32]) -> Key {
    Key::Bigint(big_endian(hash))
}

/// The first eight bytes of a hash as a number.
fn big_endian(hash: &[u8]) -> i64 {
    i64::from_be_bytes(first_bytes(hash))
}

/// The same with the lowest byte first, as programs do that use the order of bytes of their machine.
fn little_endian(hash: &[u8]) -> i64 {
    i64::from_le_bytes(first_bytes(hash))
}

fn little_endian_int(hash: &[u8]) -> i32 {
    i32::from_le_bytes(first_bytes(hash))
}

fn first_bytes<const N: usize>(hash: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| hash[index])
}

/// The first eight bytes of SHA-1.
fn sha1_key(bytes: &[u8]) -> i64 {
    little_endian(&Sha1::from(bytes).digest().bytes())
}

/// HKDF over SHA-256 without salt.
fn sqlx(bytes: &[u8]) -> i64 {
    let mut key = [0; 8];
    let expanded = Hkdf::<Sha256>::new(None, bytes).expand(b"SQLx (Rust) Postgres advisory lock", &mut key);
    expanded.expect("HKDF gives up to 8160 bytes");
    i64::from_le_bytes(key)
}

/// A short name in ASCII is in the key itself; hexadecimal digits are the key; of any other name the key is a hash.
fn dotnet(name: &str) -> Key {
    if name.is_ascii() && name.len() <= DOTNET_ASCII {
        let text = name.bytes().fold(0_u64, |key, byte| key << DOTNET_ASCII_BITS | u64::from(byte));
        let unused_bits = DOTNET_ASCII_BITS * (DOTNET_ASCII - name.len()) as u32;
        let key = text << 1 << unused_bits | ((1 << unused_bits) - 1);
        return Key::Ints((key >> 32) as i32, key as i32);
    }
    let digits = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
    let halves = |second: usize| {
        let (first, second) = (name.get(..8)?, name.get(second..)?);
        (second.len() == 8).then_some((digits(first)?, digits(second)?))
    };
    if let Some((first, second)) = halves(8) {
        return Key::Bigint((i64::from(first) << 32) | i64::from(second));
    }
    match halves(9).filter(|_| name.as_bytes()[8] == b',') {
        Some((first, second)) => Key::Ints(first.cast_signed(), second.cast_signed()),
        None => Key::Bigint(sha1_key(name.as_bytes())),
    }
}
