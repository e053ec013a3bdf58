//! `leaseway.h` is generated from the code.

use std::{env, fs, path::Path};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const PREAMBLE: &str = "\
/* The Leaseway client for C: leases on shared capacity, and limiters that enforce them. Examples are in
 * docs/guide/other-languages.md.
 *
 * Functions that can fail return a code and describe the error in `error`. Each caller passes an error of its own, or
 * NULL. Every function may be called from any thread, also while others wait. A handle is freed once, when no other
 * call uses it. Strings are UTF-8 and end with NUL.
 *
 * After a fork the child has to open a client of its own. Inherited handles fail with LEASEWAY_FORKED there, and
 * freeing them does nothing.
 *
 * Generated from src/ffi: `BLESS=1 cargo test -p leaseway-ffi header`. */";

const HANDLES: &str = "
// Keeps leases alive in a thread of its own.
typedef struct leaseway_client leaseway_client;
// Permits per second. Waiting callers are served first come, first served.
typedef struct leaseway_rate leaseway_rate;
// Permits of a rate taken in advance, until they are settled.
typedef struct leaseway_reservation leaseway_reservation;
// Permits in use at the same time. Waiting callers are served first come, first served.
typedef struct leaseway_gauge leaseway_gauge;
// Permits of a gauge in use, until they are released.
typedef struct leaseway_permit leaseway_permit;
// An amount per period, which all clients together never overspend. Callers are served first come, first served.
typedef struct leaseway_budget leaseway_budget;
// An amount of a budget taken in advance, until it is settled.
typedef struct leaseway_budget_reservation leaseway_budget_reservation;
// Several limits whose permits and amounts are taken together, or not at all.
typedef struct leaseway_limits leaseway_limits;
// Permits of several limits, until they are released.
typedef struct leaseway_permits leaseway_permits;
// Permits and amounts of several limits taken in advance, until they are settled.
typedef struct leaseway_reservations leaseway_reservations;";

#[test]
fn the_header_matches_the_code() {
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
        ("BudgetState", "budget_state"),
        ("ClientHandle", "client"),
        ("RateHandle", "rate"),
        ("ReservationHandle", "reservation"),
        ("GaugeHandle", "gauge"),
        ("PermitHandle", "permit"),
        ("BudgetHandle", "budget"),
        ("BudgetReservationHandle", "budget_reservation"),
        ("Cost", "cost"),
        ("LimitsRefusal", "refusal"),
        ("LimitsHandle", "limits"),
        ("PermitsHandle", "permits"),
        ("ReservationsHandle", "reservations"),
    ];
    config.export.rename = names.map(|(rust, c)| (rust.to_owned(), format!("leaseway_{c}"))).into();
    config.export.exclude =
        names.map(|(rust, _)| rust.to_owned()).into_iter().filter(|name| name.ends_with("Handle")).collect();
    let sources =
        ["error", "client", "rate", "gauge", "budget", "limits"].map(|module| folder.join(format!("{module}.rs")));
    let builder = sources.iter().fold(Builder::new().with_config(config), Builder::with_src);
    let mut written = Vec::new();
    builder.generate().expect("valid sources").write(&mut written);
    let (written, file) = (String::from_utf8(written).expect("UTF-8"), folder.join("leaseway.h"));
    if env::var_os("BLESS").is_some() {
        fs::write(&file, &written).expect("writable");
    }
    let current = fs::read_to_string(&file).unwrap_or_default();
    assert!(current == written, "leaseway.h is out of date: BLESS=1 cargo test -p leaseway-ffi header");
}
