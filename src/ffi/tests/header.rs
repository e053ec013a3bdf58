//! `leaseway.h` is what the code says.

use std::{env, fs, path::Path};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const PREAMBLE: &str = "\
/* The Leaseway client for C: leases on shared capacity, and limiters that keep to them. docs/guide/other-languages.md has examples.
 *
 * Functions that can fail return a code. What is wrong is told in `error`, of which each caller has its own; NULL is
 * allowed. Every function may be called by any thread, also while others wait; a handle is freed when no other call
 * uses it, once. Strings are UTF-8 and end with NUL.
 *
 * A fork: the child opens a client of its own. What it has inherited answers LEASEWAY_FORKED there, and is freed without
 * any effect.
 *
 * Generated from src/ffi: `BLESS=1 cargo test -p leaseway-ffi header`. */";

const HANDLES: &str = "
// Keeps leases in a thread of its own.
typedef struct leaseway_client leaseway_client;
// So many per second. Those that wait are served first come, first served.
typedef struct leaseway_rate leaseway_rate;
// Permits of a rate that were taken, until it is settled what was used.
typedef struct leaseway_reservation leaseway_reservation;
// So many at the same time. Those that wait are served first come, first served.
typedef struct leaseway_gauge leaseway_gauge;
// Permits of a gauge in use, until they are released.
typedef struct leaseway_permit leaseway_permit;";

#[test]
fn the_header_is_what_the_code_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        header: Some(PREAMBLE.to_owned()),
        include_guard: Some("LEASEWAY_H".to_owned()),
        no_includes: true,
        sys_includes: ["math.h", "stddef.h", "stdint.h"].map(str::to_owned).into(),
        after_includes: Some(HANDLES.to_owned()),
        line_length: 120,
        ..Config::default()
    };
    let names = [
        ("Error", "error"),
        ("Health", "health"),
        ("RateState", "rate_state"),
        ("GaugeState", "gauge_state"),
        ("ClientHandle", "client"),
        ("RateHandle", "rate"),
        ("ReservationHandle", "reservation"),
        ("GaugeHandle", "gauge"),
        ("PermitHandle", "permit"),
    ];
    config.export.rename = names.map(|(rust, c)| (rust.to_owned(), format!("leaseway_{c}"))).into();
    config.export.exclude =
        names.map(|(rust, _)| rust.to_owned()).into_iter().filter(|name| name.ends_with("Handle")).collect();
    let sources = ["fault", "client", "rate", "gauge"].map(|module| folder.join(format!("{module}.rs")));
    let builder = sources.iter().fold(Builder::new().with_config(config), Builder::with_src);
    let mut written = Vec::new();
    builder.generate().expect("the code can be read").write(&mut written);
    let (written, file) = (String::from_utf8(written).expect("UTF-8"), folder.join("leaseway.h"));
    if env::var_os("BLESS").is_some() {
        fs::write(&file, &written).expect("writable");
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(there == written, "leaseway.h is not what the code says: BLESS=1 cargo test -p leaseway-ffi header");
}
