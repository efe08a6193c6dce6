//! Recorded programs run beside patterns.

use ahead_policy::{FileId, OpenId};
use ahead_sim::{Op, Recording, RecordingKind, Recordings, Scenario};
use std::path::Path;

/// Two programs, both of which read one common file.
struct Two;

impl Recordings for Two {
    fn load(&self, kind: RecordingKind, path: &Path) -> Result<Recording, String> {
        if kind == RecordingKind::Trace || !path.ends_with("two.ahead") {
            return Err("no such recording".into());
        }
        let program = |open: u32, files: [u32; 2]| {
            let ops = files.into_iter().zip(open..).flat_map(|(file, open)| {
                let (open, file) = (OpenId(open), FileId(file));
                let read = Op::Read { open, file, offset_bytes: 0, length_bytes: 256 << 10 };
                [Op::Open { open, file }, read, Op::Compute { time_ns: 1_000_000 }, Op::Close { open }]
            });
            ops.collect()
        };
        Ok(Recording {
            file_pages: vec![64, 64, 64],
            programs: vec![program(0, [0, 1]), program(2, [1, 2])],
            used: None,
        })
    }
}

fn load(workloads: &str) -> Result<Scenario, String> {
    let text = format!("policies = [\"linux-6.18\", \"oracle\", \"none\"]\n[disk]\nmodel = \"ssd\"\n{workloads}");
    Scenario::from_toml_with(&text, ".".as_ref(), &Two).map_err(|error| error.to_string())
}

#[test]
fn recordings_run_beside_patterns_on_separate_files() {
    let pattern = "[[workload]]\npattern = \"sequential\"\nfile_mb = 1\nstreams = 2\n";
    let recorded = "[[workload]]\nprofile = \"two.ahead\"\n";
    let scenario = load(&format!("{recorded}{pattern}{recorded}")).unwrap();
    assert_eq!(scenario.workloads[0].name, "two.ahead");
    for choice in &scenario.policies {
        let counters = scenario.run(choice).unwrap();
        // Two streams of 256 pages. Each recording reads four files of 64 pages; two of the four are the same file.
        assert_eq!(counters.accesses(), 2 * 256 + 2 * 4 * 64, "{choice}");
        assert_eq!(counters.used_pages, 2 * 256 + 2 * 3 * 64, "{choice}");
        assert_eq!(counters.user_ns, 2 * 4 * 1_000_000, "{choice}");
    }
    // Calls of 64 KiB, or of the given length; or touches, whose faults map 16 cached pages at a time.
    let calls = |more: &str| {
        let scenario = load(&format!("{recorded}{more}")).unwrap();
        scenario.run_with_calls(&scenario.policies[2]).unwrap().1.len()
    };
    assert_eq!((calls(""), calls("block_kb = 16\n"), calls("via = \"mmap\"\n")), (4 * 4, 4 * 16, 4));
}

#[test]
fn an_unreadable_recording_is_reported_with_its_line() {
    let error_of = |workload: &str| load(&format!("[[workload]]\n{workload}")).map(|_| ()).unwrap_err();
    assert_eq!(
        error_of("profile = \"three.ahead\""),
        "line 5: ./three.ahead: no such recording; name a file that `ahead record` wrote"
    );
    assert_eq!(
        error_of("trace = \"two.ahead\""),
        "line 5: ./two.ahead: no such recording; name a file that `ahead sim trace` wrote"
    );
    assert!(error_of("profile = \"two.ahead\"\nfile_mb = 1").contains("file_mb goes with a pattern alone"));
}
