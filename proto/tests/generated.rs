//! Checks that `proto/generated` matches the `.proto` files. `BLESS=1 cargo test -p leaseway-proto` regenerates it.

use std::{fs, path::Path};

use prost::Message;
use tonic_prost_build::FileDescriptorSet;

const FILES: [&str; 11] = [
    "admin.proto",
    "doorman.proto",
    "envoy_discovery.proto",
    "envoy_quota.proto",
    "envoy_ratelimit.proto",
    "peer.proto",
    "pools.proto",
    "push.proto",
    "ratelimit_discovery.proto",
    "session.proto",
    "status.proto",
];
/// Files that a server's reflection omits, because their services have other ports: those of peers and gateways.
const NOT_FOR_REFLECTION: [&str; 9] = [
    "envoy_discovery.proto",
    "envoy_quota.proto",
    "envoy_ratelimit.proto",
    "google/protobuf/any.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/struct.proto",
    "google/protobuf/wrappers.proto",
    "peer.proto",
    "ratelimit_discovery.proto",
];
/// The files that import others.
const IMPORTING: [&str; 2] = ["ratelimit_discovery.proto", "session.proto"];

#[test]
fn generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let written = protox::compile(FILES, [root]).expect("the .proto files compile");
    let fresh = tempdir();
    let mut reflected = written.clone();
    reflected.file.retain(|file| !NOT_FOR_REFLECTION.contains(&file.name()));
    fs::write(fresh.join("descriptors.bin"), reflected.encode_to_vec()).expect("write descriptors");
    // Types with an external path are not generated, so the file that uses them is a set of its own.
    let (mut own, mut importing) = (required_as_optional(written.clone()), written);
    own.file.retain(|file| !IMPORTING.contains(&file.name()));
    // doorman.proto is in both sets, because the generator looks its messages up; the second run writes doorman.rs.
    importing.file.retain(|file| IMPORTING.contains(&file.name()) || file.name() == "doorman.proto");
    let generator = || tonic_prost_build::configure().build_transport(false).out_dir(&fresh);
    let imported = generator()
        .extern_path(".envoy.service.discovery.v3", "crate::envoy::discovery")
        .extern_path(".doorman", "crate::doorman");
    imported.compile_fds(importing).expect("code generation");
    generator().compile_fds(own).expect("code generation");

    let committed = root.join("generated");
    let mut drifted = Vec::new();
    for entry in fs::read_dir(&fresh).expect("read generated files") {
        let entry = entry.expect("directory entry");
        let target = committed.join(entry.file_name());
        let new = fs::read(entry.path()).expect("read generated file");
        if fs::read(&target).ok().as_ref() != Some(&new) {
            if std::env::var_os("BLESS").is_some() {
                fs::write(&target, &new).expect("write generated file");
            } else {
                drifted.push(entry.file_name());
            }
        }
    }
    fs::remove_dir_all(&fresh).expect("clean up");
    assert!(drifted.is_empty(), "{drifted:?} differ from the .proto files: run `BLESS=1 cargo test -p leaseway-proto`");
}

/// Turns required fields into optional ones. prost decodes a missing required field as its default, but a missing
/// optional one as `None`, so the parser can name it. `Some` is always encoded, even if it is zero, as strict proto2
/// peers need.
fn required_as_optional(mut set: FileDescriptorSet) -> FileDescriptorSet {
    use protox::prost_reflect::prost_types::field_descriptor_proto::Label;
    for message in set.file.iter_mut().flat_map(|file| &mut file.message_type) {
        for field in &mut message.field {
            if field.label == Some(Label::Required as i32) {
                field.label = Some(Label::Optional as i32);
            }
        }
    }
    set
}

fn tempdir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("leaseway-proto-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("create a temporary directory");
    dir
}
