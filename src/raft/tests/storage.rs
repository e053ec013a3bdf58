//! The files of a peer: the log, snapshots, the high-water mark and backups.

mod backup;
mod format;
mod full_disk;
mod high_water_mark;
mod restored_copies;
mod segment_files;
mod snapshots;
