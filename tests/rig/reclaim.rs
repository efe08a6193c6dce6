//! The kernel may reclaim cached pages: for lack of memory, or because DAMON finds them unused. A test that counts cached
//! pages then starts again.

use ahead_model::DeviceNumber;
use ahead_observe::Evictions;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
