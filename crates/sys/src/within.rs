//! Timeouts for calls to file systems that may not answer.
//!
//! A system call on a network or FUSE file system blocks until its server answers. The mount table may contain such
//! file systems of any user. Calls to file systems that may not answer are therefore made in a separate thread, which
//! is abandoned after a timeout. Its system call ends with the process at the latest: such waits are killable.

use crate::{Error, Result};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Timeout for a file system that the user has named. A disk needs 5 to 10 s to spin up, a running server far less.
pub const NAMED: Duration = Duration::from_secs(15);
/// Timeout for one of many file systems.
pub const ONE_OF_MANY: Duration = Duration::from_secs(2);

/// Runs `query` in a thread and returns its result, or `None` after a timeout or a panic.
pub fn within<T: Send + 'static>(limit: Duration, query: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    // After a timeout the receiver is gone, and sending fails.
    let asked = Builder::new().name("query".into()).spawn(move || drop(sender.send(query())));
    match asked.ok().map(|_| receiver.recv_timeout(limit)) {
        Some(Ok(answer)) => Some(answer),
        Some(Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) | None => None,
    }
}

/// Checks that the file system of a path answers; any answer counts, an error, too.
///
/// Errors: no answer within [`NAMED`].
pub fn check_answers(path: &Path) -> Result<()> {
    check_answers_in(path, NAMED)
}

fn check_answers_in(path: &Path, limit: Duration) -> Result<()> {
    let owned = path.to_owned();
    // Metadata may be cached by the kernel; statvfs always asks the file system.
    match within(limit, move || (std::fs::metadata(&owned).is_ok(), rustix::fs::statvfs(&owned).is_ok())) {
        Some(_) => Ok(()),
        None => {
            let why = format!("its file system has not answered for {} s; check that its server runs", limit.as_secs());
            Err(Error::Unsupported { what: format!("accessing {}", path.display()), why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn query_returns_its_answer_or_times_out() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (end, ended) = channel::<()>();
        assert_eq!(within(Duration::from_millis(10), move || ended.recv()), None);
        drop(end);
    }

    #[test]
    fn panic_of_a_query_is_no_answer() {
        assert_eq!(within::<()>(Duration::from_secs(60), || panic!("expected here")), None);
    }

    #[test]
    fn missing_path_is_an_answer() {
        check_answers(Path::new("/no/such/path")).unwrap();
        check_answers(Path::new("/")).unwrap();
    }
}
