//! Keys that other programs computed, and names that have no key.

use super::*;

/// A name, one with letters beyond ASCII, and a long one.
#[cfg(feature = "postgres")]
const NAMES: [&str; 3] =
    ["nightly", "Grüße/☃", "backup of the orders of the last quarter, region north-west, in full"];

#[cfg(feature = "postgres")]
fn postgres(option: &str, name: &str) -> Key {
    LockKey::of_postgres(option).unwrap().postgres(name).unwrap()
}

#[cfg(feature = "mysql")]
fn mysql(option: &str, name: &str) -> String {
    let Ok(Key::Name(key)) = LockKey::of_mysql(option).unwrap().mysql("shop", name) else {
        panic!("{option} has no key for {name:?}");
    };
    key
}

/// What the programs themselves computed: pals 0.4.0, sqlalchemy-dlock 0.9.0, django-pgware 1.0.0 (which django-pglocks
/// 2.1.0 calls), django-pglock 1.8.0, PHP 8.2 (`crc32`, as Symfony calls it), Python's `zlib` for Rails.
#[cfg(feature = "postgres")]
#[test]
fn keys_of_64_bits_are_those_of_the_other_programs() {
    let vectors: [(&str, [i64; 3]); 6] = [
        ("pals", [-8_009_236_108_308_410_153, -3_522_662_567_070_727_066, 4_938_141_809_041_152_602]),
        (
            "sqlalchemy-dlock",
            [-6_609_291_228_350_792_459, -6_576_599_987_442_849_771, 5_676_710_435_632_373_001],
        ),
        ("sha256be", [3_043_134_503_785_307_926, 3_978_550_416_698_671_147, -6_404_879_219_526_733_467]),
        ("sha256le", [1_630_262_648_214_010_666, 3_134_591_465_593_124_407, 7_345_885_332_967_792_039]),
        ("symfony", [267_906_906, 3_109_201_107, 1_831_519_205]),
        ("rails", [550_136_877_389_907_570, 6_384_628_950_857_369_415, 3_760_956_637_371_438_225]),
    ];
    for (option, keys) in vectors {
        for (name, key) in NAMES.iter().zip(keys) {
            assert_eq!(postgres(option, name), Key::Bigint(key), "{option} {name}");
        }
    }
    assert_eq!(postgres("pals", "shop.nightly"), Key::Bigint(-5_525_528_342_958_411_330));
    // From the documentation of sqlx.
    let key = postgres("sqlx", "my first Postgres advisory lock!");
    assert_eq!(key, Key::Bigint(-5_560_419_505_042_474_287));
    // `String.hashCode` of Java, added to Flyway's number.
    assert_eq!(postgres("flyway", "public.flyway_schema_history"), Key::Bigint(77_433_833_903_597));
    assert_eq!(postgres("flyway", "Größe.verläufe"), Key::Bigint(77_431_701_340_027));
}

/// What advisory-lock 2.0.0 and tooz 9.1.0 computed.
#[cfg(feature = "postgres")]
#[test]
fn keys_of_two_numbers_are_those_of_the_other_programs() {
    let vectors: [(&str, [(i32, i32); 3]); 2] = [
        (
            "advisory-lock",
            [(-1_251_853_526, 379_575_101), (-2_035_927_497, 729_828_948), (1_212_947_879, 1_710_347_210)],
        ),
        ("tooz", [(10, 227), (32, 222), (191, 190)]),
    ];
    for (option, keys) in vectors {
        for (name, (first, second)) in NAMES.iter().zip(keys) {
            assert_eq!(postgres(option, name), Key::Ints(first, second), "{option} {name}");
        }
    }
}

/// The numbers are those of the tests of DistributedLock, where it has any.
#[cfg(feature = "postgres")]
#[test]
fn distributed_lock_has_four_forms_of_a_key() {
    let dotnet = |name: &str| postgres("dotnet", name);
    // Text in the key itself.
    assert_eq!(dotnet("nightly"), Key::Ints(-576_242_034, -1_690_517_505));
    assert_eq!(dotnet("ninechars"), Key::Ints(-576_227_748, 2_050_028_262));
    // Eight digits are such a text.
    assert!(matches!(dotnet("0000000f"), Key::Ints(..)));
    // Numbers.
    assert_eq!(dotnet("0000000000000001"), Key::Bigint(1));
    assert_eq!(dotnet("ffffffffffffffff"), Key::Bigint(-1));
    assert_eq!(dotnet("00000003,FFFFFFFF"), Key::Ints(3, -1));
    // Hashes.
    assert_eq!(dotnet(&"漢".repeat(18)), Key::Bigint(-5_707_277_204_051_710_361));
    for hashed in ["some very long name", "+0000000000000001", "00000003;ffffffff", "00000003,fffffff", "é"]
    {
        let Key::Bigint(_) = dotnet(hashed) else { panic!("{hashed} is not hashed") };
    }
    assert_eq!(dotnet("some very long name"), Key::Bigint(1_765_484_347_666_752_899));
}

#[cfg(feature = "postgres")]
#[test]
fn numbers_come_from_the_option_or_from_the_name() {
    assert_eq!(postgres("bigint:-7", "any"), Key::Bigint(-7));
    assert_eq!(postgres("int,int:3,-1", "any"), Key::Ints(3, -1));
    assert_eq!(postgres("bigint", "9223372036854775807"), Key::Bigint(i64::MAX));
    assert_eq!(postgres("int,int", "-2147483648,1"), Key::Ints(i32::MIN, 1));
    for (option, name) in
        [("bigint", "9223372036854775808"), ("bigint", "7 "), ("int,int", "1"), ("int,int", "1,2147483648")]
    {
        let failed = LockKey::of_postgres(option).unwrap().postgres(name).unwrap_err();
        assert_eq!(failed.fault, Fault::Misconfigured, "{option} {name}");
    }
    for option in ["bigint:", "bigint:x", "int,int:1", "int,int:1,2,3", "pals:1", "name", "hunter2", ""] {
        let error = LockKey::of_postgres(option).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("int,int:A,B, bigint"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn own_keys_of_postgres_stay_as_they_are() {
    let own = LockKey::default();
    assert_eq!(own.postgres("nightly").unwrap(), Key::Bigint(-4_764_247_736_871_150_434));
    assert_eq!(own.postgres_permit("nightly", 2).unwrap(), Key::Bigint(-3_913_994_270_892_322_425));
    assert!(LockKey::Pals.postgres_permit("nightly", 2).is_err());
}

#[test]
fn keys_are_shown_as_the_databases_show_them() {
    #[cfg(feature = "postgres")]
    let (long, short) = (Key::Bigint(-8_009_236_108_308_410_153), Key::Ints(3, -1));
    #[cfg(feature = "postgres")]
    assert_eq!(
        (long.pg_locks(), short.pg_locks()),
        (Some((2_430_171_697, 3_121_320_151, 1)), Some((3, u32::MAX, 2)))
    );
    #[cfg(feature = "postgres")]
    assert_eq!((Key::Bigint(-7).to_string(), Key::Ints(3, -1).to_string()), ("-7".into(), "3, -1".into()));
    #[cfg(feature = "mysql")]
    assert_eq!(Key::Name("it's".into()).to_string(), "'it''s'");
}

#[test]
fn keys_beside_a_key_depend_on_it_and_on_their_purpose() {
    #[cfg(feature = "postgres")]
    let key = Key::Bigint(7);
    #[cfg(not(feature = "postgres"))]
    let key = Key::Name("7".into());
    let beside = [key.beside("waiters"), key.beside("poller"), key.beside("poller").beside("poller")];
    assert!(beside[0] != beside[1] && beside[1] != beside[2] && !beside.contains(&key), "{beside:?}");
    assert_eq!(key.beside("waiters"), beside[0]);
}

#[test]
fn flyway_takes_the_name_of_a_table() {
    for name in ["flyway_schema_history", "a.b.c", ".b", "a.", "a\".b"] {
        let failed = flyway_table(name, '"').unwrap_err();
        assert!(failed.fault == Fault::Misconfigured && failed.message.contains("SCHEMA.TABLE"), "{name}");
    }
    assert_eq!(flyway_table("a`.b", '"').unwrap(), "\"a`\".\"b\"");
    assert!(flyway_table("a`.b", '`').is_err());
}

#[cfg(feature = "mysql")]
#[test]
fn names_for_get_lock_are_those_of_the_other_programs() {
    let longest = "x".repeat(64);
    for option in ["name", "sqlalchemy-dlock", "tooz"] {
        assert_eq!(mysql(option, "Nightly"), "Nightly");
        assert_eq!(mysql(option, &longest), longest);
    }
    assert_eq!(mysql("flyway", "shop.flyway_schema_history"), "Flyway--1695041341");
    assert_eq!(mysql("rails", "nightly"), "550136877389907570");
    // From the tests of DistributedLock.
    assert_eq!(mysql("dotnet", "abc"), "abc");
    assert_eq!(mysql("dotnet", "ABC"), "abczj4qr6tvn4a3kmgq4bukhowqyfrlxsb3");
    assert_eq!(mysql("dotnet", &longest), longest);
    let hashed = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxgkd2zq6c6ey6mhs45clqg7vij6ycgo43";
    assert_eq!(mysql("dotnet", &"x".repeat(65)), hashed);
}

#[cfg(feature = "mysql")]
#[test]
fn a_name_that_get_lock_would_cut_or_change_has_no_key() {
    let longer = "x".repeat(65);
    for (option, name, reason) in [
        ("name", longer.as_str(), "at most 64"),
        ("name", "jos\u{e9}", "not ASCII"),
        ("sqlalchemy-dlock", "\u{e9}", "not ASCII"),
        ("tooz", "\u{1f512}", "not ASCII"),
        ("dotnet", "\u{1f512}", "not ASCII"),
        ("dotnet", "Ärger", "not ASCII"),
        ("flyway", "flyway_schema_history", "SCHEMA.TABLE"),
    ] {
        let failed = LockKey::of_mysql(option).unwrap().mysql("shop", name).unwrap_err();
        assert_eq!(failed.fault, Fault::Misconfigured);
        assert!(failed.message.contains(reason), "{option} {name}: {}", failed.message);
    }
    for option in ["bigint", "bigint:1", "pals", "symfony", "hunter2"] {
        let error = LockKey::of_mysql(option).unwrap_err();
        assert!(error.is_misconfigured() && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[cfg(feature = "mysql")]
#[test]
fn own_names_for_get_lock_stay_as_they_are() {
    let own = |database: &str, name: &str| LockKey::default().mysql(database, name).unwrap().to_string();
    assert_eq!(own("shop", "nightly"), "'leasehold:nightly:4efdfcfde394b20745da274cb1854b20'");
    assert_eq!(own("shop", "Grüße/☃"), "'leasehold:gr__e__:9d4d03d5192654eacb11ba95e9210e57'");
    assert_ne!(own("shop", "nightly"), own("depot", "nightly"));
    // The server ignores the case of a key: names that differ in it have different keys all the same.
    assert_ne!(own("shop", "nightly"), own("shop", "Nightly"));
    let longest = own("shop", &"\u{1f512}\u{e9}'".repeat(60));
    assert!(longest.is_ascii() && longest.len() - 2 == 64, "{longest}");
}
