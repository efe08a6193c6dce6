//! The system calls that announce reads, on files of the emulated disk: readahead(2), posix_fadvise(2), madvise(2), a page fault.
//!
//! ```text
//!     calls     ┃ readahead ×6 ┃ WILLNEED ×6 ┃ unaligned ┃ long ┃ NOREUSE ┃ DONTNEED ┃    apart from each other, in one file
//!     normal, sequential, random      read page by page: what does each read load?
//!     mapped                          mapped pages and madvise
//!     touched, touched-random         one page in 64 is touched
//!     program                         this program, started from the disk
//! ```
//!
//! Every part is used once, so one cold cache is enough. A call returns before its data has arrived, or after it; only a comparison of both
//! times on a disk that takes milliseconds shows that. The place of the data is metadata: the first call in a part of a file reads it.

use super::{OnDisk, write_file};
use crate::{Asked, CallTime, Filesystem, LiveError, Loaded, SystemCalls};
use ahead_policy::PAGE_BYTES;
use ahead_sim::Scenario;
use ahead_sys::cache;
use ahead_sys::mapping::Mapping;
use rustix::fs::{Advice, fadvise};
use std::fs::{File, Permissions};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// The file system of the paper's time. It reads the place of a block from pointer blocks, one for each 4 MiB.
const EXT2: Filesystem = Filesystem { name: "ext2", block_bytes: PAGE_BYTES };
/// Length of a request that one call may read as a whole: less than every window.
const SHORT_BYTES: u64 = 64 << 10;
/// Distance of the timed requests. A drive reads on behind a request, at most 256 KiB here.
const APART_BYTES: u64 = 512 << 10;
/// Timed calls. Another program may delay one.
const TIMES: u64 = 5;
/// The parts of the first file. Each begins behind a pointer block (12 direct blocks, 1024 blocks in each pointer block).
const READAHEAD_AT: u64 = 4 * MIB + 64 * PAGE_BYTES;
const WILL_NEED_AT: u64 = READAHEAD_AT + 4 * MIB;
const UNALIGNED_AT: u64 = 14 * MIB;
const LONG: Range<u64> = 16 * MIB..20 * MIB;
const NO_REUSE_AT: u64 = 21 * MIB;
const DONT_NEED_AT: u64 = 22 * MIB;
const CALLS_BYTES: u64 = 24 * MIB;
/// A sequential reader has reached its longest window after 64 pages, and twice that after 128.
const SEQUENTIAL_PAGES: u64 = 256;
/// Touched pages, and their distance: more than a window of 32 pages around each.
const TOUCHES: u64 = 16;
const TOUCH_PAGES: u64 = 64;

const READERS: [(&str, Advice); 3] =
    [("normal", Advice::Normal), ("sequential", Advice::Sequential), ("random", Advice::Random)];
const TOUCHED: [&str; 2] = ["touched", "touched-random"];

/// Executes all calls once, from a cold cache.
pub(super) fn run(disk: &OnDisk, scenario: &Scenario) -> Result<SystemCalls, LiveError> {
    disk.check_signal()?;
    let asked = Asked { scenario, filesystem: EXT2, each: false };
    disk.make_disk(&asked, super::MIN_DISK_BYTES)?;
    disk.check_block_size(&asked)?;
    let home = disk.mount();
    let readers = READERS.map(|(name, _)| (name, SEQUENTIAL_PAGES * PAGE_BYTES));
    let touched = TOUCHED.map(|name| (name, TOUCHES * TOUCH_PAGES * PAGE_BYTES));
    let files: Vec<_> = [("calls", CALLS_BYTES), ("mapped", MIB)].into_iter().chain(readers).chain(touched).collect();
    for (name, bytes) in &files {
        write_file(&home.join(name), *bytes)?;
    }
    let program = home.join("program");
    // Not by its path, where an upgrade may have put another program.
    std::fs::copy("/proc/self/exe", &program)?;
    std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    File::open(&program)?.sync_all()?;
    disk.make_cold(&asked)?;
    let seen = observe(&home);
    let names = files.iter().map(|(name, _)| *name).chain(["program"]);
    names.map(|name| std::fs::remove_file(home.join(name))).collect::<Result<Vec<()>, _>>()?;
    disk.check_signal()?;
    seen
}

fn observe(home: &Path) -> Result<SystemCalls, LiveError> {
    let mut seen = SystemCalls { touched_pages: TOUCHES, ..SystemCalls::default() };
    for (longest, (name, advice)) in seen.longest_pages.iter_mut().zip(READERS) {
        *longest = longest_pages(&File::open(home.join(name))?, advice)?;
    }
    let calls = File::open(home.join("calls"))?;
    add_readahead(&calls, &mut seen)?;
    add_will_need(&calls, &mut seen)?;
    add_reuse(home, &calls, &mut seen)?;
    add_mapped(home, &mut seen)?;
    for (faulted, (name, is_random)) in seen.faulted_pages.iter_mut().zip(TOUCHED.into_iter().zip([false, true])) {
        *faulted = faulted_pages(&File::open(home.join(name))?, is_random)?;
    }
    let program = home.join("program");
    let status = Command::new(&program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{}: {status}", program.display()).into());
    }
    let program = File::open(&program)?;
    let bytes = program.metadata()?.len();
    (seen.program_pages, seen.started_pages) = (bytes.div_ceil(PAGE_BYTES), pages(&program, 0..bytes)?);
    Ok(seen)
}

/// Pages of a range in the page cache; those whose read is in flight count.
fn pages(file: &File, range: Range<u64>) -> Result<u64, LiveError> {
    Ok(cache::resident_bytes(file, range.start, range.end - range.start)? / PAGE_BYTES)
}

/// What is in the page cache after a call, in the range and one megabyte around it.
fn loaded(file: &File, asked: Range<u64>) -> Result<Loaded, LiveError> {
    let start = asked.start.saturating_sub(MIB);
    let loaded = cache::resident(file, start, asked.end + MIB - start)?;
    Ok(Loaded { asked, loaded })
}

/// Waits until the data of these ranges has arrived. Other pages are not read.
fn wait_for(file: &File, ranges: &[Range<u64>]) -> Result<(), LiveError> {
    for at in ranges.iter().flat_map(|range| range.clone().step_by(PAGE_BYTES as usize)) {
        cache::wait_for(file, at)?;
    }
    Ok(())
}

fn advise(file: &File, range: &Range<u64>, advice: Advice) -> Result<(), LiveError> {
    Ok(fadvise(file, range.start, NonZeroU64::new(range.end - range.start), advice)?)
}

/// The most pages that the read of one page has loaded.
fn longest_pages(file: &File, advice: Advice) -> Result<u64, LiveError> {
    fadvise(file, 0, None, advice)?;
    let (mut longest, mut before) = (0, 0);
    for page in 0..SEQUENTIAL_PAGES {
        cache::wait_for(file, page * PAGE_BYTES)?;
        let now = pages(file, 0..SEQUENTIAL_PAGES * PAGE_BYTES)?;
        (longest, before) = (longest.max(now - before), now);
    }
    Ok(longest)
}

/// The times of a call for some ranges, the first of which begins at `at`.
fn times(
    file: &File,
    at: u64,
    count: u64,
    call: impl Fn(&Range<u64>) -> Result<(), LiveError>,
) -> Result<Vec<CallTime>, LiveError> {
    let ranges = (0..count).map(|index| at + index * APART_BYTES).map(|start| start..start + SHORT_BYTES);
    let timed = ranges.map(|range| {
        let began = Instant::now();
        call(&range)?;
        let returned_ns = began.elapsed().as_nanos() as u64;
        // Only pages that the call has requested.
        wait_for(file, &cache::resident(file, range.start, SHORT_BYTES)?)?;
        Ok(CallTime { returned_ns, arrived_ns: began.elapsed().as_nanos() as u64 })
    });
    timed.collect()
}

fn add_readahead(file: &File, seen: &mut SystemCalls) -> Result<(), LiveError> {
    let call = |range: &Range<u64>| Ok(cache::readahead_call(file, range.start, range.end - range.start)?);
    let all = times(file, READAHEAD_AT, TIMES + 1, call)?;
    (seen.readahead_cold_map, seen.readahead) = (all[0], all[1..].to_vec());
    // Neither begins nor ends at a page.
    let unaligned = UNALIGNED_AT + 1000..UNALIGNED_AT + 1000 + 2 * PAGE_BYTES;
    call(&unaligned)?;
    seen.unaligned = loaded(file, unaligned)?;
    call(&LONG)?;
    seen.long = loaded(file, LONG)?;
    Ok(())
}

fn add_will_need(file: &File, seen: &mut SystemCalls) -> Result<(), LiveError> {
    let first = WILL_NEED_AT..WILL_NEED_AT + SHORT_BYTES;
    advise(file, &first, Advice::WillNeed)?;
    seen.will_need = loaded(file, first)?;
    let call = |range: &Range<u64>| advise(file, range, Advice::WillNeed);
    seen.will_need_times = times(file, WILL_NEED_AT + APART_BYTES, TIMES, call)?;
    Ok(())
}

fn add_reuse(home: &Path, file: &File, seen: &mut SystemCalls) -> Result<(), LiveError> {
    let once = NO_REUSE_AT..NO_REUSE_AT + SHORT_BYTES;
    // The advice applies to all later reads of an open file.
    advise(&File::open(home.join("calls"))?, &once, Advice::NoReuse)?;
    seen.no_reuse = loaded(file, once)?;
    seen.cached = DONT_NEED_AT..DONT_NEED_AT + 2 * SHORT_BYTES;
    for at in [DONT_NEED_AT, DONT_NEED_AT + SHORT_BYTES] {
        advise(file, &(at..at + SHORT_BYTES), Advice::WillNeed)?;
    }
    // Pages in flight are locked, and stay.
    wait_for(file, std::slice::from_ref(&seen.cached))?;
    let freed = DONT_NEED_AT..DONT_NEED_AT + SHORT_BYTES;
    advise(file, &freed, Advice::DontNeed)?;
    seen.dont_need = Loaded { loaded: cache::resident(file, DONT_NEED_AT, 2 * SHORT_BYTES)?, asked: freed };
    Ok(())
}

fn add_mapped(home: &Path, seen: &mut SystemCalls) -> Result<(), LiveError> {
    let file = File::open(home.join("mapped"))?;
    let mapping = Mapping::new(&file, MIB as usize)?;
    let range = MIB / 2..MIB / 2 + SHORT_BYTES;
    let within = range.start as usize..range.end as usize;
    mapping.read_ahead(within.clone())?;
    seen.map_will_need = loaded(&file, range.clone())?;
    for at in within.clone().step_by(PAGE_BYTES as usize) {
        mapping.touch(at).ok_or("a page of the emulated disk cannot be read")?;
    }
    advise(&file, &range, Advice::DontNeed)?;
    let rest = |file| cache::resident(file, range.start, SHORT_BYTES);
    seen.dont_need_mapped = Loaded { asked: range.clone(), loaded: rest(&file)? };
    mapping.page_out(within)?;
    seen.map_page_out = Loaded { asked: range.clone(), loaded: rest(&file)? };
    Ok(())
}

/// Pages that are loaded when one page in [`TOUCH_PAGES`] is touched.
fn faulted_pages(file: &File, is_random: bool) -> Result<u64, LiveError> {
    let bytes = TOUCHES * TOUCH_PAGES * PAGE_BYTES;
    let mapping = Mapping::new(file, bytes as usize)?;
    if is_random {
        mapping.advise(rustix::mm::Advice::Random)?;
    }
    for touch in 0..TOUCHES {
        let page = touch * TOUCH_PAGES + TOUCH_PAGES / 2;
        mapping.touch((page * PAGE_BYTES) as usize).ok_or("a page of the emulated disk cannot be read")?;
    }
    pages(file, 0..bytes)
}
