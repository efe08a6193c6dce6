use super::*;
use crate::layout::Layout;

#[test]
fn settings_have_the_layout_of_their_structure() {
    let layout = Layout::of("layout_counters");
    let options = CounterOptions { detail: Detail::SampledHits(64), sends: true, own_pid: 9, source: None };
    let shift = machine::page_size().ilog2().into();
    let members = [("own_pid", 9), ("page_shift", shift), ("sends", 1), ("is_exact", 1), ("sample_every", 64)];
    assert_eq!(settings(&options, true), layout.bytes("counter_settings", &members));
    let exact = CounterOptions { detail: Detail::SampledHits(0), ..options };
    let members = [("own_pid", 9), ("page_shift", shift), ("sends", 1), ("is_exact", 1), ("sample_every", 1)];
    assert_eq!(settings(&exact, true), layout.bytes("counter_settings", &members));
    let seen = [("own_pid", 9), ("page_shift", shift), ("sends", 1), ("is_exact", 0), ("sample_every", 1)];
    assert_eq!(settings(&options, false), layout.bytes("counter_settings", &seen));
}
