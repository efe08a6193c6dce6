//! `ahead disk`: emulated slow disks.

use ahead_cli::messages;
use ahead_disk::{ByteRange, FaultChange, Faults, ModelSource};
use ahead_disk_server::{Filesystem, Launcher, print};
use ahead_model::quantity::{parse_size_with_unit, parse_time};
use ahead_process::undo::ProcessId;
use clap::{Args, Subcommand, ValueEnum};
use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

/// The read-ahead window that Linux has given disks since 2001 (`VM_READAHEAD_PAGES`), KiB.
const READ_AHEAD_KB: u64 = 128;

/// Emulate a slow disk: a real block device whose reads take the time of a model
///
/// A disk is an image file with a loop device. The kernel treats it like a real disk: page cache, read-ahead, scheduler, queue. Reads are
/// answered at the time of a disk model; writes go to the image at full speed, and flushes do not wait.
///
/// For 99 of 100 reads the time is that of the model within 5 % or 60 µs, if this machine is fast enough. This is measured when a disk is
/// attached, and a model that is too fast is reported (`beyond_rig`). `stat` shows the lateness of answers. While a disk is read, idle
/// processors are kept awake. Times are longer while other programs use all processors, and with a model that needs more than a third of
/// the requests/s that this machine can emulate. For exact times keep the image on a tmpfs (/dev/shm) or use --preload: a drop of all caches
/// drops the image's pages, too, and then the disk of the image is read.
#[derive(Debug, Args)]
pub struct Disk {
    #[command(subcommand)]
    command: DiskCommand,
}

#[derive(Debug, Subcommand)]
enum DiskCommand {
    Create(Create),
    Attach(Attach),
    List(List),
    Stat(Stat),
    Fault(Fault),
    Detach(Detach),
    /// Serve one disk (started by create and attach)
    #[command(hide = true)]
    Serve,
    /// Clean up after a daemon whose start was interrupted
    #[command(hide = true)]
    FinishAfter {
        pid: u32,
        start_ticks: u64,
    },
}

/// Make an image with a file system on it, attach and mount it
#[derive(Debug, Args)]
struct Create {
    /// The image file to make; it is sparse, and takes only the space of its data
    image: PathBuf,
    /// Size of the disk, as in 512M or 4G
    #[arg(long, value_parser = parse_size_with_unit)]
    size: u64,
    /// File system to make
    #[arg(long, value_enum, default_value_t = FilesystemChoice::Ext4)]
    fs: FilesystemChoice,
    #[command(flatten)]
    options: DiskOptions,
}

/// Attach an image and mount its file system
#[derive(Debug, Args)]
struct Attach {
    /// The image file
    image: PathBuf,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    options: DiskOptions,
}

#[derive(Debug, Args)]
struct DiskOptions {
    /// Model of the disk: hdd, ssd, nvme, emmc, cloud, wu, fireball, fireball-pio, ibm-s12, roudier-0, roudier-4, roudier-8,
    /// or a TOML file
    #[arg(long)]
    model: String,
    /// Empty directory to mount it on; without --mount there is only the block device
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Name of the disk [default: the image's name without extension]
    #[arg(long)]
    name: Option<String>,
    /// Read-ahead window of the device, KiB
    #[arg(long, value_name = "N", default_value_t = READ_AHEAD_KB)]
    read_ahead_kb: u64,
    /// Serve reads from a copy of the image in memory, which a drop of caches does not affect
    #[arg(long)]
    preload: bool,
    /// Log writes and flushes, with their data, in this new file: to test what a power cut leaves
    #[arg(long, value_name = "FILE")]
    write_log: Option<PathBuf>,
    /// Fail reads that touch these bytes of the disk: START+LENGTH or START-END, as in 1M+64K (may be repeated)
    #[arg(long, value_name = "RANGE")]
    fail: Vec<ByteRange>,
    /// Add this delay to every read, as in 80ms
    #[arg(long, value_name = "TIME", value_parser = parse_stall, default_value = "0")]
    stall: u64,
    /// Print the disk as JSON
    #[arg(long)]
    json: bool,
}

/// List the emulated disks
#[derive(Debug, Args)]
struct List {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// Show the counters of a disk, and the lateness of its answers
///
/// Counters since the disk was attached or reset: reads, bytes, seeks, busy time. Lateness is the delay of an answer after its due time; a
/// read is late if this is more than 60 µs and more than 5 % of its time.
#[derive(Debug, Args)]
struct Stat {
    /// Name, image, mount point or device of the disk [default: the only one]
    disk: Option<String>,
    /// Set the counters to zero after showing them
    #[arg(long)]
    reset: bool,
    /// Show the last reads, too (at most 4096 since the last reset): offset, length, time of the model
    #[arg(long)]
    reads: bool,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// Change the faults that a disk injects into its reads
///
/// Without a change, shows the faults. Pages in the cache hide faults: drop caches to see new ones.
#[derive(Debug, Args)]
struct Fault {
    /// Name, image, mount point or device of the disk
    disk: String,
    /// Fail reads that touch these bytes of the disk, too: START+LENGTH or START-END (may be repeated)
    #[arg(long, value_name = "RANGE")]
    fail: Vec<ByteRange>,
    /// Add this delay to every read, as in 80ms; 0 removes it
    #[arg(long, value_name = "TIME", value_parser = parse_stall)]
    stall: Option<u64>,
    /// Remove all earlier faults first
    #[arg(long)]
    clear: bool,
    /// Print the faults as JSON
    #[arg(long)]
    json: bool,
}

/// Unmount and detach a disk; the image stays
#[derive(Debug, Args)]
struct Detach {
    /// Name, image, mount point or device of the disk [default: the only one]
    disk: Option<String>,
    /// Detach all disks
    #[arg(long, conflicts_with = "disk")]
    all: bool,
    /// Print the detached disks as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FilesystemChoice {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    /// Leave the disk empty
    None,
}

impl FilesystemChoice {
    fn filesystem(self) -> Option<Filesystem> {
        match self {
            FilesystemChoice::Ext2 => Some(Filesystem::Ext2),
            FilesystemChoice::Ext3 => Some(Filesystem::Ext3),
            FilesystemChoice::Ext4 => Some(Filesystem::Ext4),
            FilesystemChoice::Xfs => Some(Filesystem::Xfs),
            FilesystemChoice::Btrfs => Some(Filesystem::Btrfs),
            FilesystemChoice::None => None,
        }
    }
}

impl Disk {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if matches!(self.command, DiskCommand::Create(_) | DiskCommand::Attach(_)) {
            // These commands measure the speed of this machine.
            ahead::restore::settings_if_free(&messages::print);
        }
        match self.command {
            DiskCommand::Create(command) => command.run()?,
            DiskCommand::Attach(command) => command.run()?,
            DiskCommand::List(command) => command.run()?,
            DiskCommand::Stat(command) => command.run()?,
            DiskCommand::Fault(command) => command.run()?,
            DiskCommand::Detach(command) => command.run()?,
            DiskCommand::Serve => ahead_disk_server::serve(&launcher())?,
            DiskCommand::FinishAfter { pid, start_ticks } => {
                ahead_disk_server::finish_after(ProcessId { pid, start_ticks })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::this_program(&["disk"])
}

impl DiskOptions {
    fn attach(&self, image: PathBuf, read_only: bool) -> anyhow::Result<ahead_disk_server::Attach> {
        Ok(ahead_disk_server::Attach {
            image,
            name: self.name.clone(),
            model: ModelSource::load(&self.model)?,
            mount: self.mount.clone(),
            read_only,
            read_ahead_kb: self.read_ahead_kb,
            preload: self.preload,
            write_log: self.write_log.as_ref().map(std::path::absolute).transpose()?,
            faults: Faults { fail: self.fail.clone(), stall_ms: self.stall },
        })
    }
}

impl Create {
    fn run(self) -> anyhow::Result<()> {
        let create = ahead_disk_server::Create {
            attach: self.options.attach(self.image, false)?,
            size_bytes: self.size,
            filesystem: self.fs.filesystem(),
        };
        let disk = ahead_disk_server::create(&launcher(), &create)?;
        Ok(print::attached(&mut stdout(), &disk, self.options.json)?)
    }
}

impl Attach {
    fn run(self) -> anyhow::Result<()> {
        let attach = self.options.attach(self.image, self.read_only)?;
        let disk = ahead_disk_server::attach(&launcher(), &attach)?;
        Ok(print::attached(&mut stdout(), &disk, self.options.json)?)
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        Ok(print::list(&mut stdout(), &ahead_disk::list()?, self.json)?)
    }
}

impl Stat {
    fn run(self) -> anyhow::Result<()> {
        let disk = ahead_disk::find_or_only(self.disk.as_deref())?;
        let client = ahead_disk::Client::new(&disk);
        let reads = self.reads.then(|| client.reads()).transpose()?;
        let stat = if self.reset { client.reset() } else { client.stat() }?;
        Ok(print::stat(&mut stdout(), &disk, &stat, reads.as_deref(), self.json)?)
    }
}

impl Fault {
    fn run(self) -> anyhow::Result<()> {
        let disk = ahead_disk::find(&self.disk)?;
        let change = FaultChange { clear: self.clear, fail: self.fail, stall_ms: self.stall };
        let faults = ahead_disk::Client::new(&disk).fault(change)?;
        Ok(print::faults(&mut stdout(), &disk, &faults, self.json)?)
    }
}

impl Detach {
    fn run(self) -> anyhow::Result<()> {
        let disks = match self.all {
            true => ahead_disk::list()?,
            false => vec![ahead_disk::find_or_only(self.disk.as_deref())?],
        };
        let (detached, failed) = ahead_disk::detach_all(&disks);
        let printed = print::detached(&mut stdout(), &detached, self.json);
        failed.map_or(Ok(()), Err)?;
        Ok(printed?)
    }
}

/// Parses a delay with its unit, or 0, into milliseconds.
fn parse_stall(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        _ => parse_time(text).map(|time| time.as_millis() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_need_a_unit() {
        assert_eq!(parse_stall("250ms"), Ok(250));
        assert_eq!(parse_stall("2s"), Ok(2000));
        assert_eq!(parse_stall("0"), Ok(0));
        for bad in ["250", "-1", "-1ms"] {
            assert!(parse_stall(bad).is_err(), "{bad}");
        }
    }
}
