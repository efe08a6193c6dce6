//! Relocation: makes the recorded blocks of a profile's files contiguous on a rotating disk, in order of first use.
//!
//! ```text
//!     Profile ──survey──▶ files that may be moved, by file system      refused: with a reason
//!                              │
//!                              ▼ layout (pure)
//!     MOUNT/.ahead-pack/ ── donor: contiguous blocks ──▶ record, durable ──▶ exchange, range by range ──▶ profile: new places
//!                              │                                                  ▲
//!                              └── kept until commit; undo exchanges again ───────┘
//! ```
//!
//! A file keeps its content, its inode and its times; only the blocks change. The kernel copies the data through the page cache and writes
//! it before the journal commits the exchange, so that after a power cut each file has its content, at the old or at the new place. The
//! record is durable before the first exchange, and is compared with the places of now: so an interrupted relocation can be continued,
//! undone or committed at any time. Metadata (inodes, directories, extent blocks) cannot be moved.
//!
//! A profile and a running kernel come in; files at other places, a changed profile and a [`Report`] go out. This crate must never change
//! a file's content, open a path of a profile but as a handle without links, or exchange a range that is not in a durable record.

mod copies;
mod directory;
mod exchange;
mod file_system;
mod positions;
mod reason;
mod report;
mod survey;

pub use reason::Reason;
pub use report::{FileSystemReport, PackState, RefusedFile, Report};

use ahead::device_store::Descriptions;
use ahead::{Error, Result, Signals};
use ahead_files::ProfilePlace;
use ahead_plan::relocation::{Direction, Layout, Record};
use ahead_profile::Profile;
use ahead_sys::root::Root;
use ahead_sys::{machine, mounts};
use directory::{Kept, PackDirectory, Pending};
use file_system::{FileSystem, NotNow, Planned};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use survey::Survey;

/// A relocation that brings less than this share of the present time is not made: it would cost fragments for nothing.
const LEAST_GAIN: f64 = 0.05;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    pub profile: PathBuf,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// A description or a model of the disks, instead of what is known of them.
    pub device: Option<PathBuf>,
}

/// Receives the progress: bytes done, bytes in all, and the file.
pub type Progress<'a> = &'a dyn Fn(u64, u64, &str);

/// Packs the files of a profile, or continues a relocation of it that was interrupted.
///
/// # Errors
/// No root; the profile cannot be loaded or saved; a system call failed. What was exchanged until then stays, and can be undone.
pub fn pack(options: &Options, signals: &Signals, progress: Progress<'_>) -> Result<Report> {
    need_root()?;
    let named = Named::open(&options.profile)?;
    let (profile, _) = named.place.load()?;
    let descriptions = match &options.device {
        Some(path) => Descriptions::given(path).map_err(Error::Failed)?,
        None => Descriptions::saved(&profile, &Root::default()),
    };
    let table = mounts::own()?;
    let survey = survey::survey(&profile, &table)?;
    let mut report = Report::new(&named.path, options.dry_run);
    for (device, files) in &survey.by_device {
        let file_system = file_system::open(&profile, *device, files.clone(), &table, &descriptions);
        if let Some(why) = &file_system.refused {
            report.file_systems.push(FileSystemReport::refused(&file_system, why.clone()));
            continue;
        }
        let done = match options.dry_run {
            true => expect(&profile, &file_system, &survey, &mut report),
            false => pack_one(&profile, &named, &file_system, &survey, &mut report, signals, progress),
        };
        let done = done.map_err(on(&file_system.mount_point));
        // What other file systems have done until now stays: the profile must say where it lies.
        let (done, failure) = match done {
            Ok(done) => (done, None),
            Err(error) => (FileSystemReport::refused(&file_system, error.to_string()), Some(error)),
        };
        report.file_systems.push(done);
        if failure.is_some() || report.stopped_by.is_some() {
            save_positions(&named, &report)?;
            return failure.map_or(Ok(report), Err);
        }
    }
    let refused = survey.refused.iter().map(|(file, reason)| RefusedFile::of_profile(&profile, *file, *reason));
    report.refused.extend(refused);
    save_positions(&named, &report)?;
    Ok(report)
}

/// Exchanges everything back: each file lies where it lay before the relocation.
///
/// # Errors
/// No root; no relocation of this profile is kept; a system call failed. It can be repeated.
pub fn undo(profile: &Path, signals: &Signals, progress: Progress<'_>) -> Result<Report> {
    finish(profile, |pending, named, report| {
        let Pending { directory, record, mount_point } = pending;
        let donor = directory.donor(record)?;
        let exchange = exchange::Exchange { record, donor: &donor, mount_point, direction: Direction::Undo };
        let done = exchange.run(signals, progress)?;
        let is_complete = done.refused.is_empty() && done.stopped_by.is_none();
        report.stopped_by = report.stopped_by.or(done.stopped_by);
        report.refused.extend(done.refused.iter().map(|(file, reason)| RefusedFile::of_record(record, *file, *reason)));
        directory.sync()?;
        positions::save(named, &record.files)?;
        let state = if is_complete { PackState::Undone } else { PackState::Interrupted };
        // Its blocks are freed when the last descriptor is closed.
        drop(donor);
        if is_complete {
            directory.end(record)?;
        }
        Ok(FileSystemReport {
            elsewhere_bytes: done.elsewhere_bytes,
            ..FileSystemReport::of_record(mount_point, record, state)
        })
    })
}

/// Frees the old blocks: the relocation cannot be undone any more.
///
/// # Errors
/// No root; no relocation of this profile is kept; a system call failed.
pub fn commit(profile: &Path) -> Result<Report> {
    finish(profile, |pending, named, _| {
        let Pending { directory, record, mount_point } = pending;
        positions::save(named, &record.files)?;
        directory.end(record)?;
        Ok(FileSystemReport::of_record(mount_point, record, PackState::Committed))
    })
}

/// Ends each kept relocation of a profile.
fn finish(
    profile: &Path,
    mut end: impl FnMut(&Pending, &Named, &mut Report) -> Result<FileSystemReport>,
) -> Result<Report> {
    need_root()?;
    let named = Named::open(profile)?;
    let mut report = Report::new(&named.path, false);
    let Kept { own, others, unusable } = directory::kept(&named.path)?;
    unusable.iter().for_each(|why| tracing::warn!("{why}"));
    for pending in own {
        let done = end(&pending, &named, &mut report).map_err(on(&pending.mount_point))?;
        report.file_systems.push(done);
        if report.stopped_by.is_some() {
            break;
        }
    }
    if report.file_systems.is_empty() {
        let others = if others.is_empty() { String::new() } else { format!("; kept are {}", others.join(", ")) };
        let why = "only those whose record root has kept a copy of in /var/lib/ahead/pack count";
        return Err(Error::Failed(format!(
            "{}: no relocation of this profile is kept{others}; {why}",
            named.path.display()
        )));
    }
    Ok(report)
}

/// Adds the file system to an error.
fn on(mount_point: &Path) -> impl FnOnce(Error) -> Error {
    move |error| Error::While { what: mount_point.display().to_string(), source: Box::new(error) }
}

fn need_root() -> Result<()> {
    let what = "moving blocks of files";
    if machine::is_root() { Ok(()) } else { Err(ahead_sys::Error::needs_root(what).into()) }
}

/// The profile as it was named: its directory is opened once.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    place: ProfilePlace,
}

impl Named {
    fn open(path: &Path) -> Result<Named> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let found = directory.canonicalize().map_err(|error| Error::io(directory.display().to_string(), error))?;
        let name = path.file_name().ok_or_else(|| Error::Failed(format!("{}: not a profile", path.display())))?;
        let path = found.join(name);
        Ok(Named { place: ProfilePlace::open(&path)?, path })
    }
}

/// What would be done in one file system.
fn expect(
    profile: &Profile,
    file_system: &FileSystem,
    survey: &Survey,
    report: &mut Report,
) -> Result<FileSystemReport> {
    if let Some(kept) = directory::kept_in(&file_system.mount_point)? {
        return Ok(FileSystemReport::refused(file_system, kept));
    }
    let layout = lay_out(profile, file_system, survey, report);
    if layout.segments.is_empty() {
        return Ok(FileSystemReport::nothing(file_system, &layout));
    }
    if let Err(NotNow(why)) = file_system.check_room(&layout) {
        return Ok(FileSystemReport::refused(file_system, why));
    }
    let planned = file_system.expected(profile, survey, &layout);
    Ok(match worth(&planned) {
        true => FileSystemReport::planned(file_system, &layout, &planned, PackState::Planned),
        false => FileSystemReport::planned(file_system, &layout, &planned, PackState::Nothing),
    })
}

/// The layout of the files of one file system. Files that it leaves out are refused.
fn lay_out(profile: &Profile, file_system: &FileSystem, survey: &Survey, report: &mut Report) -> Layout {
    let candidates = survey.candidates(&file_system.files);
    let layout = ahead_plan::relocation::lay_out(&candidates, &file_system.timing.description());
    for (files, reason) in [(&layout.with_holes, Reason::Holes), (&layout.too_fragmented, Reason::TooFragmented)] {
        report.refused.extend(files.iter().map(|file| RefusedFile::of_profile(profile, *file, reason)));
    }
    layout
}

fn worth(planned: &Planned) -> bool {
    planned.after_s <= planned.before_s * (1.0 - LEAST_GAIN)
}

fn pack_one(
    profile: &Profile,
    named: &Named,
    file_system: &FileSystem,
    survey: &Survey,
    report: &mut Report,
    signals: &Signals,
    progress: Progress<'_>,
) -> Result<FileSystemReport> {
    let directory = PackDirectory::open_or_create(&file_system.mount_point)?;
    if let Some(record) = directory.record()? {
        if record.profile != named.path.as_os_str().as_bytes() {
            let other = Path::new(OsStr::from_bytes(&record.profile)).display();
            let why = format!("the relocation of {other} is kept: end it with --commit or --undo first");
            return Ok(FileSystemReport::refused(file_system, why));
        }
        return carry_out(&directory, &record, file_system, report, signals, progress);
    }
    let layout = lay_out(profile, file_system, survey, report);
    let prepared = prepare(profile, named, file_system, survey, &layout, &directory)?;
    match prepared {
        Prepared::Ready(record, planned) => {
            let done = carry_out(&directory, &record, file_system, report, signals, progress)?;
            Ok(FileSystemReport {
                state: done.state,
                ..FileSystemReport::planned(file_system, &layout, &planned, done.state)
            })
        }
        Prepared::Not(done) => {
            directory.remove()?;
            Ok(*done)
        }
    }
}

/// The outcome of the preparation.
enum Prepared {
    /// The donor is complete, and the record is durable.
    Ready(Record, Planned),
    /// Nothing is to be moved, or it cannot be moved.
    Not(Box<FileSystemReport>),
}

fn prepare(
    profile: &Profile,
    named: &Named,
    file_system: &FileSystem,
    survey: &Survey,
    layout: &Layout,
    directory: &PackDirectory,
) -> Result<Prepared> {
    let not = |report| Ok(Prepared::Not(Box::new(report)));
    if layout.segments.is_empty() {
        return not(FileSystemReport::nothing(file_system, layout));
    }
    if let Err(NotNow(why)) = file_system.check_room(layout) {
        return not(FileSystemReport::refused(file_system, why));
    }
    let donor_bytes = ahead_plan::relocation::donor_bytes(layout, machine::page_size());
    let made = directory.create_donor(donor_bytes);
    let donor = match made {
        Ok(donor) => donor,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) => {
            return not(FileSystemReport::refused(file_system, "the file system is full".into()));
        }
        Err(error) => return Err(error.into()),
    };
    let (moves, planned) = match file_system.placed(profile, survey, layout, &donor)? {
        Ok(placed) => placed,
        Err(NotNow(why)) => return not(FileSystemReport::refused(file_system, why)),
    };
    if !worth(&planned) {
        return not(FileSystemReport::planned(file_system, layout, &planned, PackState::Nothing));
    }
    let inode = ahead_sys::openat::identity(&donor)?.inode;
    let mut record = Record::new(
        named.path.as_os_str().as_bytes().to_vec(),
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        file_system.block_bytes,
        inode,
    );
    record.add(moves, |file| survey.packed_file(profile, file));
    directory.write_record(&record)?;
    Ok(Prepared::Ready(record, planned))
}

/// Makes the exchanges of a durable record that have not been made.
fn carry_out(
    directory: &PackDirectory,
    record: &Record,
    file_system: &FileSystem,
    report: &mut Report,
    signals: &Signals,
    progress: Progress<'_>,
) -> Result<FileSystemReport> {
    let donor = directory.donor(record)?;
    let mount_point = &file_system.mount_point;
    let exchange = exchange::Exchange { record, donor: &donor, mount_point, direction: Direction::Pack };
    let done = exchange.run(signals, progress)?;
    directory.sync()?;
    report.packed_files.extend(record.files.iter().cloned());
    report.stopped_by = done.stopped_by;
    report.refused.extend(done.refused.iter().map(|(file, reason)| RefusedFile::of_record(record, *file, *reason)));
    let state = if done.stopped_by.is_some() { PackState::Interrupted } else { PackState::Packed };
    Ok(FileSystemReport::of_record(mount_point, record, state))
}

/// Writes the new places into the profile.
fn save_positions(named: &Named, report: &Report) -> Result<()> {
    if report.packed_files.is_empty() { Ok(()) } else { positions::save(named, &report.packed_files) }
}
