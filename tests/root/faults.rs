//! Each user of the fetch crate beside each fault: one table.
//!
//! ```text
//!     users      reader, direct reader, prefetcher, advice for a mapping, prefetch of a profile
//!     devices    one hangs, fails, is slow, vanishes         the user's work on it has begun; it does its work on another device
//!                others go first on one                      no request reaches it until they are done
//!     process    no thread, no descriptor, no memory         the program reads its bytes; when there are some again, the user does its work
//! ```
//!
//! No byte is wrong, and no end waits for a device. `steer`, which fetches for other processes, is a separate process (`steer`).

mod steer;

use super::library::target::{ColdFile, EIO, KIB, MIB, PAGE, Target, Way, content, in_child};
use super::library::use_up_descriptors;
use ahead::{Behaviour, Budget, Prefetcher, PrefetcherOptions, Replay, advise_raw};
use ahead_fetch::{BeforeRequest, set_before_request};
use ahead_model::DeviceNumber;
use ahead_sys::cache;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::mapping::Mapping;
use ahead_tests::rig::cold::cold_file;
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::silent_files::{Releasing, SilentFiles};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex};

const FILE_BYTES: u64 = 4 * MIB;

/// In the middle of a request, whatever its size; early, because readers request what comes next.
const BAD: u64 = 200 * KIB / PAGE * PAGE;

/// The end of work on a device that does not answer.
const LONGEST: Duration = Duration::from_secs(20);

/// Who asks for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Reader,
    DirectReader,
    Prefetcher,
    Advice,
    Replay,
}

const USERS: [User; 5] = [User::Reader, User::DirectReader, User::Prefetcher, User::Advice, User::Replay];

impl User {
    /// Begins to read a file ahead. It goes on until the result is dropped.
    fn begin(self, path: &Path) -> Result<Box<dyn Any>, String> {
        let failed = |error: io::Error| error.to_string();
        let bytes = fs::metadata(path).map_err(failed)?.len();
        Ok(match self {
            User::Reader | User::DirectReader => {
                let mut reader =
                    ahead::Reader::open_with(path, self.way().options(&Budget::new(64 * MIB))).map_err(failed)?;
                reader.read_exact(&mut [0; PAGE as usize]).map_err(failed)?;
                Box::new(reader)
            }
            User::Prefetcher => {
                let options = PrefetcherOptions::default().budget(Budget::new(64 * MIB));
                let mut prefetcher = Prefetcher::with_options([Path::new("/absent"), path].map(PathBuf::from), options);
                // Nothing is read ahead before the first item is taken.
                prefetcher.next();
                Box::new(prefetcher)
            }
            User::Advice => {
                let mapping =
                    Mapping::new(&File::open(path).map_err(failed)?, bytes as usize).map_err(|e| e.to_string())?;
                let addresses = mapping.addresses();
                let advised = advise_raw(addresses.start, addresses.len(), Behaviour::WillNeed, 0).map_err(failed)?;
                Box::new((advised, mapping))
            }
            User::Replay => {
                let replay = Replay::of_ranges([(path.to_path_buf(), 0..bytes)]).map_err(|error| error.to_string())?;
                Box::new(replay.start().map_err(|error| error.to_string())?)
            }
        })
    }

    fn way(self) -> Way {
        if self == User::DirectReader { Way::Direct } else { Way::PageCache }
    }

    /// Reads a cold file ahead, which works, and checks its bytes.
    fn reads_ahead(self, file: &ColdFile) {
        file.make_cold();
        if matches!(self, User::Reader | User::DirectReader) {
            let mut reader = self.way().open(&file.path);
            file.read_rest(&mut reader, 50_000);
            return assert!(reader.counters().requests > 1, "{self:?}: {:?}", reader.counters());
        }
        let begun = self.begin(&file.path).unwrap();
        let opened = File::open(&file.path).unwrap();
        wait_until("the file is read ahead", || cache::resident_bytes(&opened, 0, file.len()).unwrap() == file.len());
        drop(begun);
        assert!(fs::read(&file.path).unwrap() == file.content, "{self:?}");
    }
}

/// Ends work, which waits for no device.
fn end<T>(what: &str, work: T) {
    let began = Instant::now();
    drop(work);
    assert!(began.elapsed() < LONGEST, "{what}: {:?}", began.elapsed());
}

/// A file on a disk that works. `None`, with the reason printed: its file system keeps its pages.
fn file_beside(content: &[u8]) -> Option<(ColdFile, tempfile::NamedTempFile)> {
    let file = cold_file(content)?;
    Some((ColdFile { path: file.path().to_path_buf(), content: content.to_vec() }, file))
}

/// All users at work on a device that does not answer, and then each on another one.
#[test]
fn device_that_hangs_holds_up_no_other_one_and_no_end() {
    let Some(_machine) = Target::alone("faults-hang") else { return };
    let Some((good, _kept)) = file_beside(&content(FILE_BYTES)) else { return };
    let silent = USERS.map(|user| (user, SilentFiles::new()));
    let releasing = silent.each_ref().map(|(_, silent)| Releasing(silent));
    let hanging = silent.each_ref().map(|(user, silent)| {
        let begun = user.begin(&silent.root.join("file")).unwrap();
        wait_until(&format!("{user:?}: a request is held"), || silent.held() > 0);
        begun
    });
    USERS.iter().for_each(|user| user.reads_ahead(&good));
    for ((user, silent), begun) in silent.iter().zip(hanging) {
        end(&format!("{user:?}"), begun);
        assert!(silent.held() > 0, "{user:?}: the requests still hang");
    }
    USERS.iter().for_each(|user| user.reads_ahead(&good));
    drop(releasing);
}

#[test]
fn page_that_cannot_be_read_is_the_only_one_that_is_lost() {
    let Some(target) = Target::alone("faults-fail") else { return };
    let (bad, good) = (target.cold_file("bad", FILE_BYTES), target.cold_file("good", FILE_BYTES));
    let opened = File::open(&bad.path).unwrap();
    // The kernel's own read-ahead would make large folios, which fail as a whole.
    cache::exact_reads(&opened).unwrap();
    for user in USERS {
        target.fail(&bad, BAD, PAGE);
        bad.make_cold();
        let before = target.failed();
        let begun = user.begin(&bad.path).unwrap();
        wait_until("a request fails", || target.failed() > before);
        user.reads_ahead(&good);
        let mut page = [0; PAGE as usize];
        for number in (0..FILE_BYTES / PAGE).filter(|number| *number != BAD / PAGE) {
            let read = opened.read_exact_at(&mut page, number * PAGE);
            assert!(read.is_ok(), "{user:?}: page {number}: {read:?}");
            assert!(page == bad.page(number), "{user:?}: page {number}");
        }
        let error = opened.read_exact_at(&mut page, BAD).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{user:?}");
        end(&format!("{user:?}"), begun);
        target.heal();
        user.reads_ahead(&bad);
    }
}

#[test]
fn slow_device_is_read_ahead_and_delays_no_other_one() {
    let Some(target) = Target::alone("faults-slow") else { return };
    let slow = target.cold_file("slow", FILE_BYTES);
    let Some((good, _kept)) = file_beside(&content(FILE_BYTES)) else { return };
    for user in USERS {
        slow.make_cold();
        target.stall(30);
        let begun = user.begin(&slow.path).unwrap();
        user.reads_ahead(&good);
        end(&format!("{user:?}"), begun);
        user.reads_ahead(&slow);
        target.heal();
    }
}

/// The server of the disk ends while all users work on it.
#[test]
fn device_that_vanishes_holds_up_no_other_one_and_no_end() {
    let Some(target) = Target::alone("faults-vanish") else { return };
    let files = USERS.map(|user| (user, target.cold_file(&format!("{user:?}"), FILE_BYTES)));
    let Some((good, _kept)) = file_beside(&content(FILE_BYTES)) else { return };
    target.stall(30);
    let begun = files.each_ref().map(|(user, file)| (*user, user.begin(&file.path).unwrap()));
    target.vanish();
    USERS.iter().for_each(|user| user.reads_ahead(&good));
    for (user, begun) in begun {
        end(&format!("{user:?}"), begun);
    }
    USERS.iter().for_each(|user| user.reads_ahead(&good));
}

/// On one device others go first, while a number is there.
#[derive(Clone, Debug, Default)]
struct Others(Arc<(Mutex<OthersState>, Condvar)>);

#[derive(Debug, Default)]
struct OthersState {
    device: Option<DeviceNumber>,
    /// Requests to it that have asked.
    asked: u64,
}

impl Others {
    fn state(&self) -> std::sync::MutexGuard<'_, OthersState> {
        self.0.0.lock().ignore_poison()
    }

    fn go_first_on(&self, device: Option<DeviceNumber>) {
        *self.state() = OthersState { device, asked: 0 };
        self.0.1.notify_all();
    }

    fn asked(&self) -> u64 {
        self.state().asked
    }
}

impl BeforeRequest for Others {
    fn wait(&self, device: DeviceNumber) {
        let mut state = self.state();
        state.asked += u64::from(state.device == Some(device));
        drop(self.0.1.wait_while(state, |state| state.device == Some(device)));
    }

    fn is_paused(&self, device: DeviceNumber) -> bool {
        let mut state = self.state();
        let is_paused = state.device == Some(device);
        state.asked += u64::from(is_paused);
        is_paused
    }
}

#[test]
fn device_on_which_others_go_first_gets_no_request_and_delays_no_other_one() {
    let Some(target) = Target::alone("faults-others") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    let Some((good, _kept)) = file_beside(&content(FILE_BYTES)) else { return };
    let device = DeviceNumber::from_stat(fs::metadata(&file.path).unwrap().dev());
    for user in USERS {
        file.make_cold();
        in_child(&format!("{user:?}"), || {
            let others = Others::default();
            assert!(set_before_request(others.clone()));
            others.go_first_on(Some(device));
            let begun = user.begin(&file.path).unwrap();
            wait_until("a request asks", || others.asked() > 0);
            user.reads_ahead(&good);
            let opened = File::open(&file.path).unwrap();
            let resident = cache::resident_bytes(&opened, 0, file.len()).unwrap();
            // A reader's own missing pages are not asked about.
            let own = if user == User::Reader { MIB } else { 0 };
            assert!(resident <= own, "{user:?}: {resident} bytes");
            end(&format!("{user:?}"), begun);
            others.go_first_on(None);
            user.reads_ahead(&file);
        });
    }
}

/// What a process runs out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scarce {
    Threads,
    Descriptors,
    Memory,
}

/// Until it is dropped, this process has no more of it.
enum UsedUp<'a> {
    Threads(&'a Group),
    Descriptors { _open: Vec<File> },
    Memory(Rlimit),
}

impl Scarce {
    fn use_up(self, group: &Group) -> UsedUp<'_> {
        match self {
            Scarce::Threads => {
                fs::write(group.0.join("cgroup.procs"), std::process::id().to_string()).unwrap();
                UsedUp::Threads(group)
            }
            Scarce::Descriptors => UsedUp::Descriptors { _open: use_up_descriptors() },
            Scarce::Memory => {
                let before = getrlimit(Resource::As);
                let pages: u64 =
                    fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
                // Small things can be had; a thread's stack, a ring or a large buffer cannot.
                let limit = Rlimit { current: Some(pages * PAGE + 256 * KIB), maximum: before.maximum };
                setrlimit(Resource::As, limit).unwrap();
                UsedUp::Memory(before)
            }
        }
    }
}

impl Drop for UsedUp<'_> {
    fn drop(&mut self) {
        match self {
            UsedUp::Threads(group) => fs::write(group.0.join("pids.max"), "max").unwrap(),
            UsedUp::Descriptors { .. } => {}
            UsedUp::Memory(before) => setrlimit(Resource::As, *before).unwrap(),
        }
    }
}

/// A user that begins before there is no more, and one that begins then. Without threads or memory it may read ahead less; without descriptors it
/// is refused, unless the other one has closed a file meanwhile. The program reads its bytes in each case.
#[test]
fn without_threads_descriptors_or_memory_the_program_reads_its_bytes() {
    let Some(target) = Target::alone("faults-scarce") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    for (scarce, user) in
        [Scarce::Threads, Scarce::Descriptors, Scarce::Memory].map(|scarce| USERS.map(|user| (scarce, user))).concat()
    {
        let Some(group) = Group::with_processes(1) else { return };
        file.make_cold();
        in_child(&format!("{user:?}, no {scarce:?}"), || {
            let opened = File::open(&file.path).unwrap();
            let before = user.begin(&file.path).unwrap();
            let used_up = scarce.use_up(&group);
            let then = user.begin(&file.path);
            let mut page = [0; PAGE as usize];
            for number in 0..FILE_BYTES / PAGE {
                opened.read_exact_at(&mut page, number * PAGE).unwrap();
                assert!(page == file.page(number), "page {number}");
            }
            drop(before);
            let refused = then.err();
            drop(used_up);
            eprintln!("{user:?}, no {scarce:?}: {refused:?}");
            user.reads_ahead(&file);
        });
    }
}
