//! Real runs without a disk.

use ahead_papers::{Asked, Live, LiveError, Observed, SystemCalls};
use ahead_sim::Scenario;

/// A page cache on which each call takes a millisecond.
pub struct Steady;

impl Live for Steady {
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError> {
        let streams = asked.scenario.workloads.iter().flat_map(|workload| &workload.streams);
        let calls: u64 = streams.clone().map(|stream| stream.file_pages * 4096 / stream.call_bytes).sum();
        let read_bytes = streams.map(|stream| stream.file_pages * 4096).sum();
        let each_ns = vec![1_000_000; calls as usize];
        Ok(Observed { elapsed_ns: calls * 1_000_000, read_bytes, each_ns, ..Observed::default() })
    }

    fn system_calls(&self, _: &Scenario) -> Result<SystemCalls, LiveError> {
        Err("this paper has no system calls".into())
    }
}
