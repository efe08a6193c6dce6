//! What each request of this process asks first: others may go before it.
//!
//! ```text
//!     place in the lane ─▶ BeforeRequest: waits while others go first ─▶ the call
//! ```
//!
//! A request that waits here keeps its place in the lane of its device, and no other one, as on a device that does not answer. Who must not wait
//! (a reader that reads ahead, the loop of `steer`) looks first, and comes later. Pages that a reader waits for are not asked about.

use ahead_model::DeviceNumber;
use ahead_sys::fork_count::fork_count;
use std::fmt::Debug;
use std::sync::OnceLock;

/// Lets others go first. It is asked by many threads at the same time.
pub trait BeforeRequest: Debug + Send + Sync {
    /// Returns when a request to this device may be made: at once, or after a pause.
    fn wait(&self, device: DeviceNumber);

    /// Whether requests to this device have to wait now.
    fn is_paused(&self, device: DeviceNumber) -> bool;
}

/// With the process that has set it.
static OF_PROCESS: OnceLock<(u32, Box<dyn BeforeRequest>)> = OnceLock::new();

/// Has each request of this process ask from now on. Once in a process: returns `false` if there is one already. A child of fork(2) does not ask:
/// the locks of its parent may be held permanently.
pub fn set_before_request(before: impl BeforeRequest + 'static) -> bool {
    OF_PROCESS.set((fork_count(), Box::new(before))).is_ok()
}

fn of_process() -> Option<&'static dyn BeforeRequest> {
    let (of, before) = OF_PROCESS.get()?;
    (*of == fork_count()).then_some(&**before)
}

/// Waits while others go first.
pub(crate) fn wait(device: DeviceNumber) {
    if let Some(before) = of_process() {
        before.wait(device);
    }
}

/// Whether requests to this device have to wait for others now.
pub fn is_paused(device: DeviceNumber) -> bool {
    of_process().is_some_and(|before| before.is_paused(device))
}
