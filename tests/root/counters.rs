//! Counters of open files and decision events, compared with what programs of known patterns do.

use ahead_observe::{CounterOptions, Counters, DecisionEvents, Detail, OpenCounters, StateQuery};
use ahead_policy::Advice;
use ahead_policy::steering::{Decision, Kind};
use ahead_tests::rig::prelude::*;
use std::os::fd::AsFd;

/// Opens the file (argument 1) as `f`, with its size in pages, and the arguments after it.
const BEGIN: &str = "import mmap,os,random,sys,time; f=os.open(sys.argv[1],os.O_RDONLY); pages=os.fstat(f).st_size//4096; \
                     rest=sys.argv[2:]\n";
const END: &str = "\nprint('end',flush=True); sys.stdin.readline()";
const SEQUENTIAL: &str = "while os.read(f,65536): pass";
const BACKWARD: &str = "for page in range(pages-4,-1,-4): os.pread(f,16384,page*4096)";
const HALF: &str = "for page in range(0,pages//2,16): os.pread(f,65536,page*4096)";
/// Prints the touched pages. `closed`: no descriptor is left.
const FAULTS: &str = "m=mmap.mmap(f,0,prot=mmap.PROT_READ); 'closed' in rest and os.closerange(3,256)
for page in random.Random(1).sample(range(pages//64),40): m[page*64*4096]; print(page*64)";
/// Touches pages for at least 1.5 s. After four of them, its only descriptor comes back from a socket, where no table shows it.
const HIDDEN: &str = "import socket; m=mmap.mmap(f,0,prot=mmap.PROT_READ); a,b=socket.socketpair()
socket.send_fds(a,[b'x'],[f]); os.closerange(f,a.fileno())
for n,page in enumerate(random.Random(1).sample(range(pages//64),100)):
    m[page*64*4096]; n==3 and socket.recv_fds(b,1,1); time.sleep(0.015)";
const MAPPED_SEQUENTIAL: &str = "m=mmap.mmap(f,0,prot=mmap.PROT_READ)
for page in range(pages): m[page*4096]";
const RANDOM: &str = "for page in random.Random(1).sample(range(pages),int(rest[0])): os.pread(f,4096,page*4096)";
/// After each read, it waits for a write to another file.
const BESIDE_WRITES: &str = "g=os.open(rest[0],os.O_RDWR|os.O_CREAT)
for page in range(0,pages,16): time.sleep(0.01); os.pread(f,65536,page*4096); os.pwrite(g,b'x'*4096,page*4096); os.fsync(g)";
/// Before each read of 16 pages, it prints a line and waits for one.
const STEPS: &str =
    "for page in range(0,pages,16): print(page,flush=True); sys.stdin.readline(); os.pread(f,65536,page*4096)";

/// Reads one page through each of 10,000 open files, or as many as are permitted; prints their number.
const MANY: &str = "import resource
limit=resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE,(limit,limit))
opened=[os.open(sys.argv[1],os.O_RDONLY) for _ in range(min(10000,limit-10))]
for n,f in enumerate(opened): os.pread(f,4096,(n*37%pages)*4096)
print(len(opened))";

/// A file on a loop device whose disk has the kernel's default window of 128 KiB.
struct Disk {
    _window: Setting,
    mounted: Mounted,
}

impl Disk {
    fn new() -> Option<Disk> {
        let mounted = Mounted::new("ext4")?;
        Some(Disk { _window: Setting::set(mounted.queue("read_ahead_kb"), 128), mounted })
    }

    fn file(&self, pages: u64) -> PathBuf {
        self.mounted.file("data", pages * 4096)
    }
}

/// A program that reads, and then waits: the kernel reuses the address of a closed file, and another process would take its counters over.
struct Victim(Running);

impl Victim {
    fn start(script: &str, path: &Path, arguments: &[&str]) -> Victim {
        let python = program("python3").args(["-c", &format!("{BEGIN}{script}{END}")]).arg(path).args(arguments);
        Victim(python.open_input().start())
    }

    /// One that waits for a line before each read.
    fn stepped(path: &Path) -> Victim {
        let mut victim = Victim::start(STEPS, path, &[]);
        victim.0.line();
        victim
    }

    /// Lets it read the next 16 pages.
    fn step(&mut self) {
        self.0.ask("");
    }

    /// What it prints until it has read everything.
    fn finish(&mut self) -> Vec<u64> {
        let lines = std::iter::repeat_with(|| self.0.line());
        lines.take_while(|line| line != "end").map(|line| line.parse().unwrap()).collect()
    }
}

/// What was observed of one file.
struct Observed {
    counters: OpenCounters,
    events: Vec<Decision>,
    printed: Vec<u64>,
}

fn start(detail: Detail) -> Option<Counters> {
    let options = CounterOptions { detail, sends: true, own_pid: std::process::id(), source: None };
    Counters::start(&options).or_else(|error| skip(error).ok_or(())).ok()
}

fn inode(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    StateQuery::new().unwrap().of_own(file.as_fd()).unwrap().unwrap().inode
}

/// The counters of the only open file with this inode that read anything.
fn counters_of(counters: &Counters, inode: u64) -> OpenCounters {
    let found: Vec<_> = counters.per_open().unwrap().into_iter().filter(|open| open.inode == inode).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(counters.of_open(found[0].open).unwrap(), Some(found[0].clone()));
    found.into_iter().next().unwrap()
}

/// Runs a program that reads a cold file.
fn observe(detail: Detail, script: &str, path: &Path, arguments: &[&str]) -> Option<Observed> {
    evict(path);
    let inode = inode(path);
    let counters = start(detail)?;
    let mut events = counters.events().unwrap();
    let mut victim = Victim::start(script, path, arguments);
    let printed = victim.finish();
    let mut taken = Vec::new();
    events.take(DecisionEvents::MOST_AT_ONCE, |event| taken.push(*event)).unwrap();
    assert_eq!(events.lost(), 0);
    assert_eq!(counters.machine().unwrap().lost_events, 0);
    taken.retain(|event| event.target.inode == inode);
    Some(Observed { counters: counters_of(&counters, inode), events: taken, printed })
}

#[test]
fn sequential_read_issues_and_uses_each_page_once() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    for detail in [Detail::Decisions, Detail::Hits] {
        let Some(observed) = observe(detail, SEQUENTIAL, &path, &[]) else { return };
        let Observed { counters, events, .. } = observed;
        assert_eq!(
            (counters.counts.misses, counters.counts.faults, counters.counts.issued_pages),
            (1, 0, 2048),
            "{counters:?}"
        );
        assert_eq!((counters.counts.wasted_pages, counters.counts.thrashed_pages), (0, 0));
        // Windows of 32 pages.
        assert!((60..70).contains(&counters.counts.markers), "{counters:?}");
        assert!(
            counters.counts.waits >= 1
                && counters.counts.wait_ns > 0
                && counters.counts.locked <= counters.counts.waits,
            "{counters:?}"
        );
        let exact = detail == Detail::Hits;
        assert_eq!(counters.counts.used_pages, exact.then_some(2048));
        assert_eq!(counters.counts.hits.is_some_and(|hits| hits > 60), exact);
        let first = &events[0];
        assert_eq!((first.kind, first.page, first.wanted), (Kind::Miss, 0, 16));
        assert_eq!((first.before.size, first.before.prev_pos, first.before.window_pages), (0, -1, 32));
        assert_eq!((first.file_pages, first.cached_pages, first.disk_window_pages), (2048, 0, 32));
        assert_eq!((first.target.descriptor, first.target.mapping, first.is_thrashed), (Some(3), None, false));
        assert_eq!(first.target.device, disk.mounted.number());
        assert!(first.comm.starts_with(b"python"));
        let second = &events[1];
        assert_eq!((second.kind, second.before.start, second.before.size), (Kind::Marker, 0, 32));
        assert!(events.iter().skip(1).all(|event| event.kind == Kind::Marker));
        let last = counters.last_pages.iter().map(|last| last.page).collect::<Vec<_>>();
        assert!(last.len() == 8 && last.is_sorted(), "{last:?}");
    }
}

/// Regression: after a marker, waits of fsync(2) counted for the file that was read before.
#[test]
fn waits_for_another_file_are_not_counted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(1024);
    let other = path.with_file_name("other");
    let Some(observed) = observe(Detail::Decisions, BESIDE_WRITES, &path, &[other.to_str().unwrap()]) else { return };
    let counters = observed.counters;
    // Each marker is followed by a wait of fsync. A busy disk may be late with some windows.
    assert!(counters.counts.markers >= 8 && counters.counts.waits < counters.counts.markers / 2, "{counters:?}");
}

#[test]
fn backward_read_misses_each_time() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    let Some(Observed { counters, events, .. }) = observe(Detail::Decisions, BACKWARD, &path, &[]) else { return };
    assert_eq!(
        (counters.counts.misses, counters.counts.markers, counters.counts.issued_pages),
        (512, 0, 2048),
        "{counters:?}"
    );
    assert_eq!((counters.counts.wasted_pages, counters.counts.thrashed_pages), (0, 0));
    // The four pages of a read may arrive with two requests.
    assert!(counters.counts.locked < 32, "{counters:?}");
    let pages: Vec<_> = events.iter().take(3).map(|event| (event.page, event.wanted)).collect();
    assert_eq!(pages, [(2044, 4), (2040, 4), (2036, 4)]);
    evict(&path);
}

#[test]
fn pages_read_ahead_and_evicted_unread_are_wasted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    for detail in [Detail::Decisions, Detail::Hits] {
        evict(&path);
        let inode = inode(&path);
        let Some(counters) = start(detail) else { return };
        let mut victim = Victim::start(HALF, &path, &[]);
        victim.finish();
        let before = counters_of(&counters, inode);
        assert!((1056..1100).contains(&before.counts.issued_pages) && before.counts.wasted_pages == 0, "{before:?}");
        evict(&path);
        let after = counters_of(&counters, inode);
        assert_eq!(after.counts.wasted_pages, before.counts.issued_pages - 1024, "{detail:?}");
    }
}

/// Regression: the number of the system call after an exception was compared with 32 and with 64 bits, and no wait of a fault was counted.
#[test]
fn waits_of_faults_are_counted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    let Some(Observed { counters, .. }) = observe(Detail::Decisions, FAULTS, &path, &[]) else { return };
    // A request may end before its thread sleeps.
    assert!(counters.counts.waits >= 10 && counters.counts.wait_ns > 0 && counters.counts.locked < 10, "{counters:?}");
}

#[test]
fn faults_have_their_page_and_mapping() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    for (detail, arguments) in [(Detail::Decisions, &[][..]), (Detail::Decisions, &["closed"]), (Detail::Hits, &[])] {
        let Some(observed) = observe(detail, FAULTS, &path, arguments) else { return };
        let Observed { counters, events, printed } = observed;
        assert_eq!(
            (counters.counts.misses, counters.counts.faults, counters.counts.markers),
            (40, 40, 0),
            "{counters:?}"
        );
        // 32 pages around each fault; at the start of the file they may overlap, at the end they are fewer.
        assert!((39 * 32 - 16..=40 * 32).contains(&counters.counts.issued_pages), "{counters:?}");
        assert_eq!(counters.counts.used_pages, (detail == Detail::Hits).then_some(40));
        assert_eq!(counters.counts.hits, (detail == Detail::Hits).then_some(0));
        assert!(events.len() >= 16);
        // In each tenth of a second 16 events are sent: those of the first 16 faults, and of later ones on a busy machine.
        assert!(events.iter().zip(&printed).take(16).all(|(event, page)| event.page == *page), "{events:?}");
        let mut pages = printed.iter();
        for event in &events {
            assert_eq!((event.kind, event.wanted), (Kind::Fault, 1));
            assert!(pages.any(|page| *page == event.page), "{event:?}");
            let mapping = event.target.mapping.unwrap();
            assert_eq!((mapping.first_page, mapping.end_page, mapping.advice), (0, 16384, Advice::Normal));
            assert_eq!(event.target.descriptor.is_none(), !arguments.is_empty());
        }
        let last = counters.last_pages.iter().map(|last| (last.page, last.is_fault));
        assert!(last.eq(printed[32..].iter().map(|page| (*page, true))), "{counters:?}");
    }
}

/// Regression: without a descriptor, every event searched the whole table of descriptors, up to 65,536 entries.
#[test]
fn failed_search_for_a_descriptor_is_repeated_after_a_second() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    let Some(Observed { events, .. }) = observe(Detail::Decisions, HIDDEN, &path, &[]) else { return };
    let failed_ns = events[0].at_ns;
    let (early, late): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.at_ns < failed_ns + 990_000_000);
    assert!(early.iter().all(|event: &&Decision| event.target.descriptor.is_none()), "{early:?}");
    assert!(late.last().is_some_and(|event: &&Decision| event.target.descriptor.is_some()), "{late:?}");
}

/// Regression: the reader of the events took all that arrived, and served no signals in a storm.
#[test]
fn decisions_are_taken_in_bounded_groups() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    evict(&path);
    let Some(counters) = start(Detail::Decisions) else { return };
    let mut events = counters.events().unwrap();
    Victim::start(FAULTS, &path, &[]).finish();
    let mut groups = Vec::new();
    loop {
        let mut called = 0;
        let taken = events.take(3, |_| called += 1).unwrap();
        assert_eq!(taken, called);
        if taken == 0 {
            break;
        }
        groups.push(taken);
    }
    assert!(groups.iter().all(|taken| *taken <= 3) && groups.iter().sum::<usize>() >= 16, "{groups:?}");
}

#[test]
fn sequential_mapping_uses_its_pages() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    let Some(Observed { counters, events, .. }) = observe(Detail::Hits, MAPPED_SEQUENTIAL, &path, &[]) else { return };
    assert_eq!(
        (counters.counts.misses, counters.counts.faults, counters.counts.issued_pages),
        (1, 1, 2048),
        "{counters:?}"
    );
    assert_eq!((counters.counts.used_pages, counters.counts.wasted_pages), (Some(2048), 0), "{counters:?}");
    let markers = events.iter().filter(|event| event.kind == Kind::Marker && event.target.mapping.is_some());
    assert!(markers.count() >= 16);
}

#[test]
fn random_reader_sends_sixteen_events_in_a_tenth_of_a_second() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    let Some(observed) = observe(Detail::Decisions, RANDOM, &path, &["4000"]) else { return };
    let Observed { counters, events, .. } = observed;
    assert!(counters.counts.misses > 3000, "{counters:?}");
    let within = |first: &Decision| {
        let end = first.at_ns + 99_000_000;
        events.iter().filter(|event| event.at_ns >= first.at_ns && event.at_ns < end).count()
    };
    // The budget of two periods may meet.
    assert!(events.iter().all(|first| within(first) <= 2 * (16 + 32)), "{}", events.len());
    assert!(events.len() >= 16 && (events.len() as u64) < counters.counts.misses / 4, "{}", events.len());
    // Each event has the counts of all decisions.
    let last = events.last().unwrap();
    assert!(last.misses > events.len() as u64 && last.issued_pages >= last.misses - 1);
}

#[test]
fn small_file_sends_nothing_and_is_counted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(64);
    let Some(Observed { counters, events, .. }) = observe(Detail::Decisions, SEQUENTIAL, &path, &[]) else { return };
    assert_eq!((counters.counts.misses, counters.counts.issued_pages, events.len()), (1, 64, 0), "{counters:?}");
}

#[test]
fn page_evicted_before_it_is_read_thrashes() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    for detail in [Detail::Decisions, Detail::Hits] {
        evict(&path);
        let inode = inode(&path);
        let Some(counters) = start(detail) else { return };
        let mut events = counters.events().unwrap();
        let mut reader = Victim::stepped(&path);
        reader.step();
        let first = counters_of(&counters, inode);
        assert_eq!((first.counts.misses, first.counts.issued_pages), (1, 32), "{first:?}");
        evict(&path);
        reader.step();
        let second = counters_of(&counters, inode);
        assert_eq!(
            (second.counts.misses, second.counts.thrashed_pages, second.counts.wasted_pages),
            (2, 1, 16),
            "{second:?}"
        );
        let mut thrashed = Vec::new();
        let take = |event: &Decision| thrashed.extend((event.target.inode == inode).then_some(event.is_thrashed));
        events.take(DecisionEvents::MOST_AT_ONCE, take).unwrap();
        assert_eq!(thrashed, [false, true]);
        // Pages that were read already, and are read again, were not evicted too early.
        assert_eq!(first.counts.thrashed_pages, 0);
    }
}

#[test]
fn quiet_file_sends_only_what_differs() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    evict(&path);
    let inode = inode(&path);
    let Some(counters) = start(Detail::Decisions) else { return };
    let mut events = counters.events().unwrap();
    let mut taken = || {
        let mut pages = Vec::new();
        events
            .take(DecisionEvents::MOST_AT_ONCE, |event| {
                pages.extend((event.target.inode == inode).then_some(event.page))
            })
            .unwrap();
        pages
    };
    let mut reader = Victim::stepped(&path);
    reader.step();
    assert_eq!(taken(), [0]);
    let open = counters_of(&counters, inode).open;
    counters.set_quiet(open, true).unwrap();
    reader.step();
    reader.step();
    assert_eq!(taken(), [0; 0]);
    assert!(counters_of(&counters, inode).counts.markers >= 2);
    // The next marked page is evicted before it is read: a miss that thrashes.
    evict(&path);
    reader.step();
    assert_eq!(taken(), [48]);
    counters.set_quiet(open, false).unwrap();
    reader.step();
    reader.step();
    assert!(!taken().is_empty());
    counters.forget(open);
    assert_eq!(counters.of_open(open).unwrap(), None);
    counters.forget(open);
}

#[test]
fn own_reads_are_not_counted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(2048);
    evict(&path);
    let inode = inode(&path);
    for detail in [Detail::Decisions, Detail::Hits] {
        let Some(counters) = start(detail) else { return };
        let mut events = counters.events().unwrap();
        evict(&path);
        fs::read(&path).unwrap();
        let mut own = 0;
        events.take(DecisionEvents::MOST_AT_ONCE, |event| own += u32::from(event.target.inode == inode)).unwrap();
        assert_eq!(own, 0);
        assert!(counters.per_open().unwrap().iter().all(|open| open.inode != inode));
    }
}

/// A file on overlayfs is reported by the open file of its layer, and by the descriptor that the process has.
#[test]
fn file_on_overlay_is_seen_in_its_layer() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.mounted.file("lower/data", 2048 * 4096);
    evict(&path);
    let inode = inode(&path);
    let Some((merged, _overlay)) = disk.mounted.overlay() else { return };
    let data = merged.join("data");
    let file = File::open(&data).unwrap();
    let own = StateQuery::new().unwrap().of_own(file.as_fd()).unwrap().unwrap();
    assert_eq!((own.inode, own.device), (inode, disk.mounted.number()));
    drop(file);
    for (script, kind) in [(SEQUENTIAL, Kind::Miss), (MAPPED_SEQUENTIAL, Kind::Fault)] {
        let Some(observed) = observe(Detail::Decisions, script, &data, &[]) else { return };
        assert_eq!((observed.counters.counts.misses, observed.counters.counts.issued_pages), (1, 2048));
        assert_eq!((observed.events[0].kind, observed.events[0].target.descriptor), (kind, Some(3)));
    }
}

/// More open files than the kernel returns at once. The time of one query is printed; the limit is for a slow machine.
#[test]
fn ten_thousand_open_files_are_counted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.file(16384);
    evict(&path);
    let inode = inode(&path);
    let Some(counters) = start(Detail::Decisions) else { return };
    let mut victim = Victim::start(MANY, &path, &[]);
    let opened = usize::try_from(victim.finish()[0]).unwrap();
    let begin = Instant::now();
    let counted = counters.per_open().unwrap();
    let elapsed = begin.elapsed();
    eprintln!("counters of {} open files in {elapsed:?}", counted.len());
    // The kernel reads ahead where pages before the read one are cached: a few open files miss nothing.
    let of_file = counted.iter().filter(|open| open.inode == inode).count();
    assert!((opened - opened / 100..=opened).contains(&of_file), "{of_file} of {opened}");
    assert!(elapsed.as_millis() < 500, "{elapsed:?}");
}
