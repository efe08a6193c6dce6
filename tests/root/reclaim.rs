//! The kernel's reclaim, on which `unless_reclaimed` depends.

use ahead_model::DeviceNumber;
use ahead_observe::{Evicted, Evictions};
use ahead_sys::openat;
use ahead_tests::rig::prelude::*;
use std::cell::RefCell;

/// Size of the file that is evicted in both ways.
const BYTES: u64 = 4 << 20;

/// Reclaim for lack of memory differs from an eviction that a process requests.
#[test]
fn reclaim_differs_from_requested_eviction() {
    let evictions = match Evictions::start() {
        Ok(evictions) => evictions,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let (_machine, home) = (shared(), on_disk());
    let path = home.path().join("data");
    fs::write(&path, vec![1; BYTES as usize]).unwrap();
    let file = File::open(&path).unwrap();
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
    let mut child = program("python3").args(["-c", page_out]).arg(&path).open_input().start();
    // Pages that were evicted before the program read them are cached again.
    child.line();
    let child = RefCell::new(Some(child));
    let (bytes, reclaimed_bytes) = evicted(&|| drop(child.take().unwrap().end().success()));
    assert!(bytes >= BYTES && reclaimed_bytes >= BYTES, "{bytes} {reclaimed_bytes}");
    let (bytes, reclaimed_bytes) = evicted(&|| {
        fs::read(&path).unwrap();
        evict(&path);
    });
    assert!(bytes >= BYTES && bytes - reclaimed_bytes >= BYTES, "{bytes} {reclaimed_bytes}");
}
