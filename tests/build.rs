//! Tests of third-party programs run if an environment variable has the program's path. For example,
//! `LEASEWAY_TEST_ENVOY` sets `cfg(envoy)`; without it the tests with Envoy are ignored. `.ci/run` sets all variables.

const GATES: [&str; 15] = [
    "chromium",
    "control_planes",
    "cxx",
    "doorman",
    "envoy",
    "go_client",
    "go_control_plane",
    "koffi",
    "namespaces",
    "otlp",
    "python",
    "python_client",
    "ratelimit",
    "redis",
    "schemathesis",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for gate in GATES {
        let variable = format!("LEASEWAY_TEST_{}", gate.to_uppercase());
        println!("cargo::rerun-if-env-changed={variable}");
        println!("cargo::rustc-check-cfg=cfg({gate})");
        if std::env::var_os(&variable).is_some() {
            println!("cargo::rustc-cfg={gate}");
        }
    }
}
