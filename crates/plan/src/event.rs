//! What the threads of a simulated program do, as flat lists.

/// What a thread does at a point of its processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Waits for this signal.
    Await(u32),
    /// Sleeps for this time, microseconds: no thread of the program ends it.
    Sleep(u32),
    /// Uses this piece or lookup.
    Use(u32),
    /// Starts this thread.
    Start(u32),
    /// Gives this signal.
    Signal(u32),
    /// Ends.
    End,
}

/// An event of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The thread's processor time, microseconds.
    pub at_us: f64,
    /// What happens.
    pub what: What,
}

/// The events of all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// Thread by thread, each in the order of its processor time.
    pub events: Vec<Event>,
    /// For each thread the index of its first event, and the number of events at the end.
    pub first: Vec<u32>,
    /// Threads that run from the beginning.
    pub roots: Vec<u32>,
    /// Number of signals.
    pub signals: usize,
    /// Whether there is a timeline.
    pub is_recorded: bool,
}

impl Script {
    /// The events of a thread.
    pub fn of(&self, thread: usize) -> std::ops::Range<usize> {
        self.first[thread] as usize..self.first[thread + 1] as usize
    }

    /// Of lists of events, one for each thread, each in any order.
    pub fn of_threads(threads: Vec<Vec<Event>>, roots: Vec<u32>, signals: usize, is_recorded: bool) -> Script {
        let mut script = Script { roots, signals, is_recorded, ..Script::default() };
        for mut events in threads {
            events.sort_unstable_by(|a, b| a.at_us.total_cmp(&b.at_us).then(a.what.cmp(&b.what)));
            script.first.push(script.events.len() as u32);
            script.events.extend(events);
        }
        script.first.push(script.events.len() as u32);
        script
    }
}
