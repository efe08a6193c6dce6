use super::*;
use crate::layout::Layout;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

#[test]
fn state_has_the_layout_of_its_structure() {
    let layout = Layout::of("layout_decisions");
    let flag = |name: &str| layout.value("state_flag", name);
    let members = [
        ("open", 1),
        ("inode", 2),
        ("inode_number", 3),
        ("file_bytes", 4),
        ("cached_pages", 5),
        ("position", 6),
        ("start", 7),
        ("prev_pos", u64::MAX),
        ("size", 9),
        ("async_size", 10),
        ("window", 11),
        ("disk_window", 12),
        ("device", 8 << 20 | 13),
        ("pid", 14),
        ("descriptor", 15),
        ("mmap_miss", 16),
        ("flags", flag("STATE_RANDOM") | flag("STATE_READABLE")),
    ];
    let mut bytes: [u8; STATE_BYTES] = layout.bytes("open_state", &members).try_into().unwrap();
    let name = layout.offset("open_state", "name");
    bytes[name..name + 4].copy_from_slice(b"grep");
    let expected = OpenState {
        pid: 14,
        descriptor: 15,
        comm: *b"grep\0\0\0\0\0\0\0\0\0\0\0\0",
        open: 1,
        inode: 2,
        inode_number: 3,
        device: DeviceNumber::new(8, 13),
        file_bytes: 4,
        cached_pages: 5,
        position_bytes: 6,
        readahead: Readahead {
            start: 7,
            size: 9,
            async_size: 10,
            window_pages: 11,
            prev_pos: -1,
            mmap_miss: 16,
            is_random: true,
        },
        disk_window_pages: 12,
        is_cached: false,
        is_readable: true,
        is_not_reused: false,
    };
    assert_eq!(OpenState::decode(&bytes), expected);
    bytes[layout.offset("open_state", "flags")] = (flag("STATE_CACHED") | flag("STATE_NOREUSE")) as u8;
    let state = OpenState::decode(&bytes);
    assert!(state.is_cached && state.is_not_reused && !state.is_readable && !state.readahead.is_random);
}

#[test]
fn query_has_the_layout_of_its_structure() {
    let layout = Layout::of("layout_decisions");
    for (name, at) in [("open", 0), ("inode", 8), ("descriptor", 16), ("is_found", 20), ("state", 24)] {
        assert_eq!(layout.offset("state_query", name), at, "{name}");
    }
    assert_eq!(layout.bytes("state_query", &[]).len(), QUERY_BYTES);
}

/// `None`, with the reason printed, without the privilege.
fn query() -> Option<StateQuery> {
    StateQuery::new().map_err(|error| eprintln!("skipped: {error}")).ok()
}

/// A file of 1 MiB on the disk of the build directory, deleted when it is closed.
fn file(pages: usize) -> File {
    let path = format!("{}/state-{:?}", env!("OUT_DIR"), std::thread::current().id());
    let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&vec![7; pages * 4096]).unwrap();
    file
}

#[test]
fn own_file_is_found_by_descriptor_process_and_address() {
    let Some(query) = query() else { return };
    let mut file = file(256);
    file.seek(SeekFrom::Start(100)).unwrap();
    file.read_exact(&mut [0; 1000]).unwrap();
    let metadata = file.metadata().unwrap();
    let own = query.of_own(file.as_fd()).unwrap().expect("a regular file has a state");
    assert_eq!(own.pid, std::process::id());
    assert_eq!(own.descriptor, file.as_raw_fd() as u32);
    assert_eq!(own.device, DeviceNumber::from_stat(metadata.dev()));
    assert_eq!((own.inode_number, own.file_bytes, own.cached_pages), (metadata.ino(), 256 * 4096, 256));
    assert_eq!((own.position_bytes, own.readahead.prev_pos), (1100, 1100));
    assert!(own.is_cached && own.is_readable && !own.readahead.is_random);
    let of_process = query.of_process(own.pid).unwrap();
    let listed = of_process.iter().find(|state| state.descriptor == own.descriptor).copied();
    assert_eq!(listed, Some(own));
    assert!(of_process.iter().all(|state| state.pid == own.pid));
    assert_eq!(query.at(own.open, own.inode).unwrap(), Some(OpenState { pid: 0, descriptor: 0, comm: [0; 16], ..own }));
    assert_eq!(query.at(own.open, own.inode + 8).unwrap(), None);
}

#[test]
fn advice_is_seen_in_the_state() {
    let Some(query) = query() else { return };
    let file = file(1);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    assert!(query.of_own(file.as_fd()).unwrap().unwrap().readahead.is_random);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential).unwrap();
    let state = query.of_own(file.as_fd()).unwrap().unwrap();
    assert!(!state.readahead.is_random && !state.is_not_reused);
    assert_eq!(state.readahead.window_pages, 2 * state.disk_window_pages);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::NoReuse).unwrap();
    let state = query.of_own(file.as_fd()).unwrap().unwrap();
    // Linux 6.3 and later.
    if state.is_not_reused {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Normal).unwrap();
        assert!(!query.of_own(file.as_fd()).unwrap().unwrap().is_not_reused);
    }
}

#[test]
fn closed_file_and_wild_address_are_not_found() {
    let Some(query) = query() else { return };
    let file = file(1);
    let own = query.of_own(file.as_fd()).unwrap().unwrap();
    drop(file);
    assert_eq!(query.at(own.open, own.inode).unwrap(), None);
    for address in [0, 1, 0xffff_8000_0000_0000, u64::MAX] {
        assert_eq!(query.at(address, own.inode).unwrap(), None, "{address:#x}");
    }
}

#[test]
fn what_has_no_read_ahead_is_not_listed() {
    let Some(query) = query() else { return };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(query.of_own(reader.as_fd()).unwrap(), None);
    for path in ["/dev/null", "/proc/self/stat", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/shm"] {
        let file = File::open(path).unwrap();
        assert_eq!(query.of_own(file.as_fd()).unwrap(), None, "{path}");
    }
}

#[test]
fn threads_with_the_same_descriptors_count_once() {
    let Some(query) = query() else { return };
    let file = file(1);
    let states = std::thread::scope(|scope| scope.spawn(|| query.of_process(std::process::id())).join().unwrap());
    let of_file = states.unwrap().into_iter().filter(|state| state.descriptor == file.as_raw_fd() as u32);
    assert_eq!(of_file.count(), 1);
}

/// The time for 10,000 open files is printed; the limit is for a slow machine.
#[test]
fn ten_thousand_open_files_are_listed_in_time() {
    let Some(query) = query() else { return };
    let file = file(1);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let more = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, more).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened: Vec<File> = (0..10_000).map_while(|_| File::open(&path).ok()).collect();
    let own = query.of_own(file.as_fd()).unwrap().unwrap();
    let times = (0..5).map(|_| {
        let begin = Instant::now();
        let states = query.all().unwrap();
        let elapsed = begin.elapsed();
        let listed = states.iter().filter(|state| state.pid == own.pid && state.inode == own.inode).count();
        assert_eq!(listed, opened.len() + 1);
        elapsed
    });
    let least = times.min().unwrap();
    eprintln!("{} open files in {least:?}", opened.len());
    let begin = Instant::now();
    for _ in 0..1000 {
        query.at(own.open, own.inode).unwrap();
    }
    eprintln!("a query by address takes {:?}", begin.elapsed() / 1000);
    assert!(least.as_millis() < 200, "{least:?}");
}
