//! A machine of a test's own, for programs with fixed ports and paths: it has a network, processes, a root directory of
//! its own, in which it may create files, and empty /root/.config and /root/.local. Other directories are those of this
//! machine.

use std::{path::Path, process::Command};

use super::binary;

/// Set within such a machine.
const INSIDE: &str = "LEASEWAY_TEST_INSIDE";

/// Another address of the machine, and the port that its connections to one port reach. With it two programs can have
/// the same port, as in containers of their own.
pub(crate) type Redirect = (&'static str, u16, u16);

/// Makes the root directory in `$1`, with `$2` as its /etc/hosts and the redirects in `$3`, and runs the rest there.
const SETUP: &str = r#"
set -eu
root=$1 hosts=$2 redirects=$3
shift 3
ip link set lo up
echo "$redirects" | while read -r address from to; do
    iptables -t nat -A OUTPUT -d "$address" -p tcp --dport "$from" -j REDIRECT --to-ports "$to"
done
echo "$hosts" >"$root.hosts"
mount -t tmpfs tmpfs "$root"
for each in /*; do
    if [ -L "$each" ]; then
        cp -P "$each" "$root$each"
    elif [ -d "$each" ] && [ "$each" != /proc ]; then
        mkdir "$root$each"
        mount --rbind "$each" "$root$each"
    fi
done
mkdir "$root/proc"
mount -t proc proc "$root/proc"
mount --bind "$root.hosts" "$root/etc/hosts"
for each in .config .local; do
    mkdir -p "$root/root/$each"
    mount -t tmpfs tmpfs "$root/root/$each"
done
exec chroot "$root" env -C "$PWD" "$@"
"#;

/// Whether the test of this name runs in such a machine. If not, this runs it in one with these lines in its
/// /etc/hosts, and fails if it fails.
pub(crate) fn is_own(test: &str, hosts: &[&str], redirects: &[Redirect]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // Built here, because there is no registry inside.
    binary::path();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let hosts = [&["127.0.0.1 localhost"], hosts].concat().join("\n");
    let redirects: Vec<_> = redirects.iter().map(|(address, from, to)| format!("{address} {from} {to}")).collect();
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--map-root-user"])
        .args(["sh", "-c", SETUP, "sh"])
        .args([root.as_path(), Path::new(&hosts), Path::new(&redirects.join("\n"))])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success(), "the test failed in a machine of its own: {status}");
    false
}
