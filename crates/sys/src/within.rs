//! Timeouts for calls to file systems that may not answer.
//!
//! A system call on a network or FUSE file system blocks until its server answers. The mount table may contain such
//! file systems of any user. Calls to file systems that may not answer are therefore made in a separate thread, which
//! is abandoned after a timeout. Its system call ends with the process at the latest: such waits are killable.

use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

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

/// Queries about other processes, each of which may hold up its answer. They cost the caller little time, whatever those processes do: a query is given
/// up after `limit`, after a slow one the next are refused for nine times as long as it took, and at most `most` threads wait.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    most: usize,
    waiting: Arc<AtomicUsize>,
    resume: Option<Instant>,
}

/// A thread that waits, or one that cannot be started.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn begin(waiting: &Arc<AtomicUsize>) -> Waits {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waits(Arc::clone(waiting))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A query is slow if it takes a larger part of the limit.
const SLOW_PART: u32 = 4;

/// The pause after a slow query, in times that it took: the caller loses at most a tenth of its time.
const PAUSE: u32 = 9;

impl Patience {
    /// `limit`: longest time of a query; `most`: threads that wait.
    pub fn new(limit: Duration, most: usize) -> Patience {
        Patience { limit, most, waiting: Arc::default(), resume: None }
    }

    /// The answer. `None`: there is none in time, or it was not asked for after slow ones.
    pub fn ask<T: Send + 'static>(&mut self, query: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let began = Instant::now();
        if self.resume.is_some_and(|resume| began < resume) || self.waiting.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let waits = Waits::begin(&self.waiting);
        let answer = within(self.limit, move || {
            let _waits = waits;
            query()
        });
        let took = began.elapsed();
        self.resume = (took > self.limit / SLOW_PART).then(|| Instant::now() + took * PAUSE);
        answer
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
    fn queries_without_an_answer_cost_little_time_and_few_threads() {
        let mut patience = Patience::new(Duration::from_millis(200), 2);
        assert_eq!(patience.ask(|| 7), Some(7));
        let (end, ended) = channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let hang = |patience: &mut Patience| {
            let ended = Arc::clone(&ended);
            patience.resume = None;
            patience.ask(move || ended.lock().unwrap().recv().is_ok())
        };
        assert_eq!(hang(&mut patience), None);
        let began = Instant::now();
        assert!(patience.resume.is_some_and(|resume| resume > began + Duration::from_secs(1)));
        // The pause: the query is not made.
        assert_eq!(patience.ask(|| panic!("asked in the pause")), None::<()>);
        assert_eq!(hang(&mut patience), None);
        // Both threads wait.
        assert_eq!((hang(&mut patience), patience.waiting.load(Ordering::Relaxed)), (None, 2));
        drop(end);
    }

    #[test]
    fn panic_of_a_query_is_no_answer() {
        assert_eq!(within::<()>(Duration::from_secs(60), || panic!("expected here")), None);
    }

    /// Regression: a query that ended with a panic, or whose thread could not be started, counted as one that waits.
    #[test]
    fn failed_query_does_not_count_as_waiting() {
        let mut patience = Patience::new(Duration::from_secs(60), 1);
        assert_eq!(patience.ask(|| panic!("expected here")), None::<()>);
        assert_eq!(patience.ask(|| 7), Some(7));
    }

    #[test]
    fn missing_path_is_an_answer() {
        check_answers(Path::new("/no/such/path")).unwrap();
        check_answers(Path::new("/")).unwrap();
    }
}
