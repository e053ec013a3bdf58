//! The log on disk: append-only segment files. The oldest is deleted once all of its entries are purged.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::log::{
    LogId, StoreError,
    codec::{self, DecodeError, FORMAT, FrameResult, Kind},
    directory,
    memory::{Log, Record, SegmentStart},
};

/// A new segment is begun when the current one has reached this size.
const SEGMENT_BYTES: u64 = 2 << 20;

#[derive(Debug)]
pub(crate) struct Segments {
    directory: PathBuf,
    /// Oldest first; the last one is appended to.
    segments: VecDeque<Segment>,
    file: File,
    length: u64,
    full: u64,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    path: PathBuf,
    /// The highest index of any entry in it.
    highest: Option<u64>,
}

impl Segments {
    /// Reads all segments, which have to reach the high-water mark. Drops a record that a crash tore off at the end.
    pub(crate) fn open(directory: &Path, mark: Option<LogId>) -> Result<(Segments, Log), StoreError> {
        Segments::open_with(directory, mark, SEGMENT_BYTES)
    }

    /// As [`open`](Segments::open), with another segment size.
    pub(crate) fn open_with(directory: &Path, mark: Option<LogId>, full: u64) -> Result<(Segments, Log), StoreError> {
        fs::create_dir_all(directory).map_err(StoreError::io("create", directory))?;
        let mut log = Log::default();
        let mut segments = VecDeque::new();
        let mut whole = 0;
        let (mut incomplete, mut torn) = (None, None);
        let found = list(directory)?;
        for (index, (number, path)) in found.iter().enumerate() {
            let last = index + 1 == found.len();
            let loaded = load(*number, path, last, &mut log)?;
            match loaded.segment {
                Some(segment) => segments.push_back(segment),
                // The peer died while it created the segment, so it has no records.
                None => incomplete = Some(path),
            }
            whole = if loaded.length == 0 { whole } else { loaded.length };
            torn = (loaded.torn > 0).then_some((path, loaded.length, loaded.torn));
        }
        if let Some((_, path)) = found.first() {
            log.is_whole().map_err(|error| damaged(path, 0, error.to_string()))?;
        }
        if log.last() < mark {
            let path = found.last().map_or(directory, |(_, path)| path);
            return Err(damaged(path, whole, ends_before_mark(log.last(), mark)));
        }
        // Nothing was changed so far.
        if let Some((path, offset, dropped)) = torn {
            tracing::warn!(path = %path.display(), offset, dropped,
                "dropped an incomplete write at the end of the log, which was never acknowledged");
        }
        if let Some(path) = incomplete {
            fs::remove_file(path).map_err(StoreError::io("remove", path))?;
        }
        let (file, length) = match segments.back() {
            Some(segment) => (reopen(&segment.path, whole)?, whole),
            None => {
                let (segment, file, length) = begin(directory, 1, None)?;
                segments.push_back(segment);
                (file, length)
            }
        };
        Ok((Segments { directory: directory.to_owned(), segments, file, length, full }, log))
    }

    /// All records are on disk when this returns. After an error, any prefix of them may be.
    pub(crate) fn append(&mut self, records: &[Record], purged: Option<LogId>) -> Result<(), StoreError> {
        if self.length >= self.full {
            self.roll(purged)?;
        }
        let mut bytes = Vec::new();
        let mut highest = None;
        for record in records {
            write(&mut bytes, record);
            if let Record::Entry(entry) = record {
                highest = Some(entry.log_id.index);
            }
        }
        let segment = self.segments.back_mut().expect("there is always a current segment");
        self.file.write_all(&bytes).map_err(StoreError::io("append to", &segment.path))?;
        self.file.sync_data().map_err(StoreError::io("flush", &segment.path))?;
        self.length += bytes.len() as u64;
        segment.highest = segment.highest.max(highest);
        Ok(())
    }

    /// Deletes the oldest segments whose entries are all purged. The purge record has been appended before.
    pub(crate) fn drop_purged(&mut self, purged: LogId) -> Result<(), StoreError> {
        let mut dropped = false;
        while self.segments.len() > 1
            && self.segments.front().is_some_and(|oldest| oldest.highest.is_none_or(|highest| highest <= purged.index))
        {
            let oldest = self.segments.pop_front().expect("there are at least two segments");
            fs::remove_file(&oldest.path).map_err(StoreError::io("remove", &oldest.path))?;
            dropped = true;
        }
        if dropped { directory::sync(&self.directory) } else { Ok(()) }
    }

    fn roll(&mut self, purged: Option<LogId>) -> Result<(), StoreError> {
        let number = self.segments.back().map_or(1, |last| last.number + 1);
        let (segment, file, length) = begin(&self.directory, number, purged)?;
        self.segments.push_back(segment);
        (self.file, self.length) = (file, length);
        Ok(())
    }
}

pub(crate) fn write(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Entry(entry) => codec::write_frame(out, Kind::Entry, &codec::encode(entry)),
        Record::Truncate(from) => codec::write_frame(out, Kind::Truncate, &codec::encode(from)),
        Record::Purge(upto) => codec::write_frame(out, Kind::Purge, &codec::encode(upto)),
    }
}

/// The segments of a directory, in order.
fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(StoreError::io("list", directory))? {
        let path = entry.map_err(StoreError::io("list", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(number) = name.and_then(|name| name.strip_suffix(".log")).and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    for pair in found.windows(2) {
        if pair[1].0 != pair[0].0 + 1 {
            return Err(damaged(
                &pair[1].1,
                0,
                format!("segment {}, which comes before this one, is missing", pair[1].0 - 1),
            ));
        }
    }
    Ok(found)
}

/// The error text of a log that ends before the high-water mark.
fn ends_before_mark(last: Option<LogId>, mark: Option<LogId>) -> String {
    let entry = |id: LogId| format!("entry {} of term {}", id.index, id.leader_id.term);
    let ends = last.map_or_else(|| "the log is empty".to_owned(), |last| format!("the log ends with {}", entry(last)));
    let acknowledged = mark.map_or_else(|| "nothing".to_owned(), entry);
    format!("{ends}, but this server has acknowledged everything up to {acknowledged} (file high-water-mark)")
}

pub(crate) struct LoadedSegment {
    /// `None` if the header is incomplete.
    segment: Option<Segment>,
    /// The number of intact bytes.
    length: u64,
    /// The number of bytes of a torn record after the intact ones.
    torn: u64,
}

fn load(number: u64, path: &Path, last: bool, log: &mut Log) -> Result<LoadedSegment, StoreError> {
    let bytes = fs::read(path).map_err(StoreError::io("read", path))?;
    replay(number, path, &bytes, last, log)
}

/// Replays a segment. `last`: no other segment follows, so its end may be torn off.
pub(crate) fn replay(
    number: u64,
    path: &Path,
    bytes: &[u8],
    last: bool,
    log: &mut Log,
) -> Result<LoadedSegment, StoreError> {
    let mut segment = None;
    let mut at = 0;
    loop {
        let wrong = |what: String| damaged(path, at as u64, what);
        let undecodable = |error: DecodeError| wrong(error.to_string());
        match codec::read_frame(bytes, at) {
            FrameResult::Frame { kind, payload, end } => {
                let size = (end - at) as u64;
                match (&mut segment, kind) {
                    (None, Kind::Segment) => {
                        let start: SegmentStart = codec::decode(payload).map_err(undecodable)?;
                        if start.number != number {
                            return Err(wrong(format!(
                                "its header has the segment number {}, but its file name {number}",
                                start.number
                            )));
                        }
                        if let Some(purged) = start.purged {
                            log.purge(purged);
                        }
                        segment = Some(Segment { number, path: path.to_owned(), highest: None });
                    }
                    (Some(segment), Kind::Entry | Kind::Truncate | Kind::Purge) => {
                        let record = match kind {
                            Kind::Entry => Record::Entry(codec::decode(payload).map_err(undecodable)?),
                            Kind::Truncate => Record::Truncate(codec::decode(payload).map_err(undecodable)?),
                            _ => Record::Purge(codec::decode(payload).map_err(undecodable)?),
                        };
                        if let Record::Entry(entry) = &record {
                            segment.highest = segment.highest.max(Some(entry.log_id.index));
                        }
                        log.replay(record, size).map_err(|error| wrong(error.to_string()))?;
                    }
                    _ => return Err(wrong(format!("a record of kind {kind:?} does not belong here"))),
                }
                at = end;
            }
            FrameResult::Torn if last => {
                return Ok(LoadedSegment { segment, length: at as u64, torn: (bytes.len() - at) as u64 });
            }
            FrameResult::End if last || at > 0 => return Ok(LoadedSegment { segment, length: at as u64, torn: 0 }),
            FrameResult::End | FrameResult::Torn => {
                return Err(wrong("the segment is truncated, although another one follows".into()));
            }
            FrameResult::Damaged(what) => return Err(wrong(what.into())),
            FrameResult::Format(found) => {
                return Err(StoreError::Format { path: path.to_owned(), found, known: FORMAT });
            }
        }
    }
}

/// Opens a segment to append after `length`, and truncates it to that.
fn reopen(path: &Path, length: u64) -> Result<File, StoreError> {
    let opened = File::options().append(true).open(path).and_then(|file| {
        file.set_len(length)?;
        file.sync_all()?;
        Ok(file)
    });
    opened.map_err(StoreError::io("open", path))
}

fn begin(directory: &Path, number: u64, purged: Option<LogId>) -> Result<(Segment, File, u64), StoreError> {
    let path = directory.join(format!("{number:020}.log"));
    let mut bytes = Vec::new();
    codec::write_frame(&mut bytes, Kind::Segment, &codec::encode(&SegmentStart { number, purged }));
    let begun = File::options().append(true).create_new(true).open(&path).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(file)
    });
    let file = begun.map_err(StoreError::io("begin", &path))?;
    directory::sync(directory)?;
    Ok((Segment { number, path, highest: None }, file, bytes.len() as u64))
}

fn damaged(path: &Path, offset: u64, what: String) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), offset, what }
}
