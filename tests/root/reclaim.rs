//! The kernel may reclaim cached pages: for lack of memory, or because DAMON finds them unused. A test that counts cached
//! pages then starts again.

use ahead_model::DeviceNumber;
use ahead_observe::{Evicted, Evictions};
use ahead_sys::{evict, openat};
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Stdio;

/// The largest number of attempts of a test. If the kernel reclaims every five seconds, one attempt in five of a one-second test
/// fails.
const ATTEMPTS: u32 = 4;

/// Runs a test of pages cached from loop devices. A test that fails while such pages are reclaimed runs again, with a printed
/// line; any other failure counts.
pub fn unless_reclaimed(test: impl Fn()) {
    let Ok(evictions) = Evictions::start() else { return test() };
    for attempt in 1.. {
        let before = reclaimed_bytes(&evictions);
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        let bytes = reclaimed_bytes(&evictions) - before;
        if bytes == 0 || attempt == ATTEMPTS {
            resume_unwind(failure);
        }
        eprintln!("starts again: the kernel reclaimed {bytes} bytes of loop devices during the test");
    }
}

/// Reclaimed bytes of all loop devices and of superblocks with anonymous device numbers (btrfs).
fn reclaimed_bytes(evictions: &Evictions) -> u64 {
    let loops = (0..256).map(|minor| DeviceNumber::new(LOOP_MAJOR, minor));
    let anonymous = (0..1024).map(|minor| DeviceNumber::new(0, minor));
    loops.chain(anonymous).map(|device| evictions.of(device).unwrap().reclaimed_bytes).sum()
}

/// The major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;

/// Size of the file that is evicted in both ways.
const BYTES: u64 = 4 << 20;

/// Reclaim for lack of memory differs from an eviction that a process requests.
#[test]
fn reclaim_differs_from_requested_eviction() {
    let evictions = match Evictions::start() {
        Ok(evictions) => evictions,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let _machine = crate::machine_lock::shared();
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("data");
    std::fs::write(&path, vec![1; BYTES as usize]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let key = openat::handle(&path).unwrap().identity().device;
    let device = DeviceNumber::from_key(key);
    let inode = file.metadata().unwrap().ino();
    assert_eq!(evictions.of_file(device, inode).unwrap(), Evicted::default());
    evictions.watch(device, inode).unwrap();
    let evicted = |work: &dyn Fn()| {
        let (before, of_file_before) = (evictions.of(device).unwrap(), evictions.of_file(device, inode).unwrap());
        work();
        let (after, of_file) = (evictions.of(device).unwrap(), evictions.of_file(device, inode).unwrap());
        // A second watch changes nothing.
        evictions.watch(device, inode).unwrap();
        let of_file = (of_file.bytes - of_file_before.bytes, of_file.reclaimed_bytes - of_file_before.reclaimed_bytes);
        assert_eq!(of_file.0, BYTES);
        assert!(of_file.1 == 0 || of_file.1 == BYTES, "{of_file:?}");
        (after.bytes - before.bytes, after.reclaimed_bytes - before.reclaimed_bytes)
    };
    let page_out = "import mmap,sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); \
                    sum(m[::4096]); print(flush=True); sys.stdin.readline(); m.madvise(21)";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", page_out]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Pages that were evicted before the program read them are cached again.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let child = RefCell::new(child);
    let (bytes, reclaimed_bytes) = evicted(&|| {
        let mut child = child.borrow_mut();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    });
    assert!(bytes >= BYTES && reclaimed_bytes >= BYTES, "{bytes} {reclaimed_bytes}");
    let (bytes, reclaimed_bytes) = evicted(&|| {
        std::fs::read(&path).unwrap();
        evict::file(&file).unwrap();
    });
    assert!(bytes >= BYTES && bytes - reclaimed_bytes >= BYTES, "{bytes} {reclaimed_bytes}");
}
