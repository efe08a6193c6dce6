//! Questions to file systems that may not answer.
//!
//! A system call on a file system of a server (NFS, FUSE) waits for that server for as long as it takes, and the mount table may hold
//! such file systems of any user. So what has to be asked of mounts that are not known to answer is asked in a thread of its own,
//! which is given up after a time. Its system call ends with the process at the latest: such waits can be killed.

use crate::{Error, Result};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// How long a file system is waited for that a user has named: a disk that has to start its motor takes 5 to 10 s, a server that runs
/// far less.
pub const NAMED: Duration = Duration::from_secs(15);
/// How long one is waited for that is only one of many.
pub const ONE_OF_MANY: Duration = Duration::from_secs(2);

/// What a question comes to, if it is answered in time.
pub fn within<T: Send + 'static>(limit: Duration, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    // Who has given up does not listen any more.
    let asked = Builder::new().name("question".into()).spawn(move || drop(sender.send(question())));
    match asked.ok().map(|_| receiver.recv_timeout(limit)) {
        Some(Ok(answer)) => Some(answer),
        Some(Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) | None => None,
    }
}

/// Whether the file system that a path leads to answers at all; what it answers is another question.
///
/// Errors: it does not, in [`NAMED`].
pub fn check_answers(path: &Path) -> Result<()> {
    check_answers_in(path, NAMED)
}

fn check_answers_in(path: &Path, limit: Duration) -> Result<()> {
    let owned = path.to_owned();
    // The metadata, and the room: the one may be remembered by the kernel, the other is always asked for.
    match within(limit, move || (std::fs::metadata(&owned).is_ok(), rustix::fs::statvfs(&owned).is_ok())) {
        Some(_) => Ok(()),
        None => {
            let why =
                format!("its file system has not answered for {} s; see whether its server runs", limit.as_secs());
            Err(Error::Unsupported { what: format!("looking at {}", path.display()), why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_answer_is_given_and_one_that_does_not_come_is_not_waited_for() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (end, ended) = channel::<()>();
        assert_eq!(within(Duration::from_millis(10), move || ended.recv()), None);
        drop(end);
    }

    #[test]
    fn a_question_that_panics_is_no_answer() {
        assert_eq!(within::<()>(Duration::from_secs(60), || panic!("expected here")), None);
    }

    #[test]
    fn what_is_not_there_answers_too() {
        check_answers(Path::new("/no/such/path")).unwrap();
        check_answers(Path::new("/")).unwrap();
    }
}
