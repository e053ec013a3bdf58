//! envoyproxy/ratelimit with its Redis.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{
    foreign,
    peers::channel,
    process::Process,
    rls::RlsCaller,
    server::free_addresses,
    wait::{block_on, eventually},
};

/// Both programs stop when it is dropped.
pub(crate) struct Ratelimit {
    caller: RlsCaller,
    process: Process,
    _redis: Process,
    _directory: TempDir,
}

impl Ratelimit {
    /// Starts it with the files in `root/rules/config`.
    pub(crate) fn start(root: &Path) -> Ratelimit {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock").display().to_string();
        let flags = ["--port", "0", "--unixsocket", &socket, "--save", "", "--appendonly", "no"];
        let redis = Process::start_program(Path::new("redis-server"), &flags, &[]);
        eventually("Redis listens", || fs::metadata(&socket).ok());
        let root = root.display().to_string();
        let [grpc, http, debug] = free_addresses(3)[..] else { panic!("three addresses") };
        let ports = [grpc, http, debug].map(|address| address.port().to_string());
        let host = grpc.ip().to_string();
        let variables = [
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", &socket),
            ("DISABLE_STATS", "true"),
            ("RUNTIME_ROOT", &root),
            ("RUNTIME_SUBDIRECTORY", "rules"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("GRPC_HOST", &host),
            ("GRPC_PORT", &ports[0]),
            ("HOST", &host),
            ("PORT", &ports[1]),
            ("DEBUG_HOST", &host),
            ("DEBUG_PORT", &ports[2]),
        ];
        let process = Process::start_program(&foreign::path("LEASEWAY_TEST_RATELIMIT"), &[], &variables);
        eventually("envoyproxy/ratelimit listens", || {
            assert!(process.ended().is_none(), "it exited during startup: {}", process.stderr());
            block_on(tokio::net::TcpStream::connect(grpc)).ok()
        });
        Ratelimit { caller: RlsCaller::on(channel(grpc)), process, _redis: redis, _directory: directory }
    }

    pub(crate) fn caller(&self) -> RlsCaller {
        self.caller.clone()
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }
}
