//! Backups: the part of the state that is needed if all peers are lost, as a file of JSON lines.
//!
//! The first line is the header, each following line is one command, and the last line has their number and a checksum
//! of everything before it. A backup has no promises: the lost peers may have promised more since, and a new master
//! with a total that is too low would lease capacity twice. Instead the header has the longest time that promises may
//! be in force. A cluster that begins with a backup learns from its clients for that time.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use leaseway_core::{pool::PoolNotes, types::Millis};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    log::{
        StoreError, codec,
        command::{Command, Configuration, Listening},
        directory,
    },
    state::State,
};

/// The format that this program writes, and the newest that it reads.
const BACKUP_FORMAT: u32 = 1;
/// The file of the backup to restore, in an unused data directory.
const RESTORE_FILE: &str = "restore.jsonl";
/// The maximum number of entries of a pool in one record.
const MAX_RECORD_ENTRIES: usize = 2000;
/// Commands are added to a proposal until it has this size: all peers have to receive it within a heartbeat.
const MAX_PROPOSAL_BYTES: u64 = 256 << 10;

/// A member of the cluster at the time of the backup, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUpPeer {
    pub name: String,
    pub peer_address: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    leaseway_backup: u32,
    /// The version of the program that made it.
    pub program: String,
    /// The cluster id in hexadecimal.
    pub cluster: String,
    /// The peer that made it.
    pub peer: String,
    /// Seconds since the Unix epoch.
    pub at_unix: i64,
    /// The longest time, in milliseconds, for which promises of the lost cluster may be in force.
    pub believed_ms: u64,
    pub members: Vec<BackedUpPeer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    records: usize,
    crc32: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Backup {
    header: BackupHeader,
    records: Vec<Command>,
}

/// Why a file cannot be restored. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    #[error("not a Leaseway backup (bad header)")]
    NoBackup,
    #[error(
        "this backup has format {found}, and this version of leaseway reads formats up to {BACKUP_FORMAT}: restore it with the version that made it, or a newer one"
    )]
    Newer { found: u32 },
    #[error("line {line} of this backup is damaged: {what}; copy the file again, or use another backup")]
    Damaged {
        /// Counted from 1.
        line: usize,
        what: String,
    },
}

/// Why a backup cannot be put into a data directory.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} is not empty: restore into a new directory, or delete this one first", .0.display())]
    NotEmpty(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The number of records in a backup by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupCounts {
    pub assignments: usize,
    pub loads: usize,
    pub overrides: usize,
    pub limits: usize,
    pub declarations: usize,
    /// Records of balances and costs of pools.
    pub pools: usize,
    /// What holders of budgets have spent, by holder and period.
    pub usage: usize,
}

impl Backup {
    pub(crate) fn of(state: &State, header: BackupHeader, now: Millis) -> Backup {
        let all = state.record(now);
        let mut records: Vec<Command> = Vec::new();
        records.extend(state.configuration().cloned().map(Command::Configuration));
        let overrides = state.overrides_in_force(header.at_unix.max(0) as u64 * 1000).cloned();
        records.extend(overrides.map(|(target, set)| Command::Override { target, set: Some(Box::new(set)) }));
        records.extend(all.loads.into_iter().map(|(resource, load)| Command::Load { resource, load: Some(load) }));
        records.extend(all.limits.into_iter().map(Command::Limits));
        let declarations = all.declarations.into_iter();
        records
            .extend(declarations.map(|(name, declaration)| Command::Declare { name, declaration: Some(declaration) }));
        records.extend(all.usage.into_iter().map(|(resource, rows)| Command::Usage { resource, rows }));
        let assignments = all.assignments.into_iter();
        records.extend(assignments.map(|(resource, kind, holder, assigned)| Command::Assignment {
            resource,
            kind,
            holder,
            assigned,
        }));
        for (resource, notes) in all.pools {
            let pieces = pieces(notes, MAX_RECORD_ENTRIES).into_iter().map(Box::new);
            records.extend(pieces.map(|notes| Command::Pool { resource: resource.clone(), notes }));
        }
        Backup { header, records }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = String::new();
        line(&mut text, &self.header);
        for record in &self.records {
            line(&mut text, record);
        }
        let crc32 = format!("{:08x}", crc32fast::hash(text.as_bytes()));
        line(&mut text, &Trailer { records: self.records.len(), crc32 });
        text.into_bytes()
    }

    /// Fails unless the file is complete and intact.
    pub fn read(bytes: &[u8]) -> Result<Backup, BackupError> {
        #[derive(Deserialize)]
        struct Format {
            leaseway_backup: u32,
        }
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let Some((first, rest)) = lines.split_first() else { return Err(BackupError::NoBackup) };
        let Ok(Format { leaseway_backup: found }) = serde_json::from_slice(first) else {
            return Err(BackupError::NoBackup);
        };
        if found > BACKUP_FORMAT {
            return Err(BackupError::Newer { found });
        }
        let header = parse(first, 1)?;
        let ended = |what: &str| BackupError::Damaged { line: lines.len(), what: what.into() };
        let Some((last, records)) = rest.split_last() else { return Err(ended("the file ends after this line")) };
        let trailer: Trailer =
            serde_json::from_slice(last).map_err(|_| ended("the last line with the checksum is missing"))?;
        let before = &bytes[..bytes.len() - last.len()];
        let sum = format!("{:08x}", crc32fast::hash(before));
        if trailer.crc32 != sum || trailer.records != records.len() {
            return Err(ended(&format!("its checksum is {}, but the content has {sum}", trailer.crc32)));
        }
        let records = records.iter().enumerate().map(|(index, record)| parse(record, index + 2));
        let backup = Backup { header, records: records.collect::<Result<_, _>>()? };
        match backup.records.iter().position(|record| !is_restorable(record)) {
            Some(index) => {
                Err(BackupError::Damaged { line: index + 2, what: "records of this kind cannot be restored".into() })
            }
            None => Ok(backup),
        }
    }

    /// Puts the backup into a data directory, which is created if necessary, for a peer that is started there.
    pub fn put_into(&self, data: &Path) -> Result<(), RestoreError> {
        fs::create_dir_all(data).map_err(StoreError::io("create", data))?;
        let mut entries = fs::read_dir(data).map_err(StoreError::io("read", data))?;
        if entries.next().is_some() {
            return Err(RestoreError::NotEmpty(data.to_owned()));
        }
        Ok(directory::replace_bytes(data, RESTORE_FILE, &self.to_bytes())?)
    }

    /// The backup that was put into a data directory and not restored yet.
    pub fn pending(data: &Path) -> Result<Option<Backup>, StoreError> {
        let path = data.join(RESTORE_FILE);
        let Some(bytes) = directory::read_all(&path)? else { return Ok(None) };
        let damaged = |error: BackupError| StoreError::Damaged { path, offset: 0, what: error.to_string() };
        Backup::read(&bytes).map(Some).map_err(damaged)
    }

    pub(crate) fn remove_pending(data: &Path) -> Result<(), StoreError> {
        let path = data.join(RESTORE_FILE);
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))
    }

    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The learning period of a cluster that begins with it.
    pub fn believed(&self) -> Millis {
        Millis(self.header.believed_ms)
    }

    /// Sets the time for which promises may be in force.
    pub fn believed_for(mut self, length: Millis) -> Backup {
        self.header.believed_ms = length.0;
        self
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        self.records.iter().find_map(|record| match record {
            Command::Configuration(configuration) => Some(configuration),
            _ => None,
        })
    }

    pub fn counts(&self) -> BackupCounts {
        let mut counts = BackupCounts::default();
        for record in &self.records {
            match record {
                Command::Assignment { .. } => counts.assignments += 1,
                Command::Load { .. } => counts.loads += 1,
                Command::Override { .. } => counts.overrides += 1,
                Command::Limits(changes) => counts.limits += changes.limits.len(),
                Command::Declare { .. } => counts.declarations += 1,
                Command::Pool { .. } => counts.pools += 1,
                Command::Usage { rows, .. } => counts.usage += rows.len(),
                _ => {}
            }
        }
        counts
    }

    /// Never zero. All peers have to agree on it before they begin a cluster.
    pub(crate) fn checksum(&self) -> u32 {
        crc32fast::hash(&self.to_bytes()).max(1)
    }

    /// The proposals of the first master, in order. The state is blank until the last one is applied, so that the next
    /// master starts over if this one is lost.
    pub(crate) fn proposals(&self) -> Vec<Vec<Command>> {
        let is_late = |record: &&Command| {
            matches!(record, Command::Configuration(_) | Command::Override { .. } | Command::Load { .. })
        };
        let mut proposals = Vec::new();
        let (mut proposal, mut bytes) = (Vec::new(), 0);
        for record in self.records.iter().filter(|record| !is_late(record)) {
            bytes += codec::encoded_len(record);
            proposal.push(record.clone());
            if bytes > MAX_PROPOSAL_BYTES {
                proposals.push(std::mem::take(&mut proposal));
                bytes = 0;
            }
        }
        proposals.extend((!proposal.is_empty()).then_some(proposal));
        let late = self.records.iter().filter(is_late).cloned();
        let listen = Command::Listen(Listening { length: self.believed(), whole: true });
        proposals.push(late.chain([listen]).collect());
        proposals
    }
}

impl BackupHeader {
    pub(crate) fn new(program: &str, at_unix: i64, believed: Millis) -> BackupHeader {
        BackupHeader {
            leaseway_backup: BACKUP_FORMAT,
            program: program.to_owned(),
            cluster: String::new(),
            peer: String::new(),
            at_unix,
            believed_ms: believed.0,
            members: Vec::new(),
        }
    }
}

fn is_restorable(record: &Command) -> bool {
    use Command::{Assignment, Configuration, Declare, Limits, Load, Override, Pool, Usage};
    matches!(
        record,
        Configuration(_)
            | Assignment { .. }
            | Load { .. }
            | Override { .. }
            | Limits(_)
            | Declare { .. }
            | Pool { .. }
            | Usage { .. }
    )
}

fn line(text: &mut String, record: &impl Serialize) {
    let record = serde_json::to_string(record).expect("plain data in memory always encodes");
    let _ = writeln!(text, "{record}");
}

fn parse<T: DeserializeOwned>(bytes: &[u8], line: usize) -> Result<T, BackupError> {
    serde_json::from_slice(bytes).map_err(|error| BackupError::Damaged { line, what: error.to_string() })
}

/// Splits notes into several with at most `most` entries each.
fn pieces(notes: PoolNotes, most: usize) -> Vec<PoolNotes> {
    let PoolNotes { anew, clock, total, mut balances, mut costs } = notes;
    let mut pieces = Vec::new();
    while pieces.is_empty() || !balances.is_empty() || !costs.is_empty() {
        let of_balances: Vec<_> = balances.drain(..balances.len().min(most)).collect();
        let of_costs = costs.drain(..costs.len().min(most - of_balances.len())).collect();
        let anew = anew && pieces.is_empty();
        pieces.push(PoolNotes { anew, clock, total, balances: of_balances, costs: of_costs });
    }
    pieces
}
