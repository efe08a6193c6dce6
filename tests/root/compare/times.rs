//! Times of the devices that a cold recording measures: they decide whether a disk is read by position.

use super::Disk;
use ahead_plan::from_recording::seeks;
use ahead_tests::rig::prelude::*;

/// Whether the disk counts as one that seeks, after a recording of this program. `None`: even reads without a seek took longer than those of
/// the slowest fast model (1 ms), because the machine is too busy to emulate it.
fn is_taken_for_rotating(disk: &Disk, program: &[String]) -> Option<bool> {
    // With read-ahead, times of use do not show the disk: they are measured after the run.
    let record = ahead(["record", "--cold", "--no-precise", "--runs", "1", "-o"]).arg(disk.profile());
    record.arg("--").args(program).ok();
    let profile = ahead_files::load(&disk.profile()).unwrap();
    let last = program.last().unwrap().as_bytes();
    let device = profile.files.iter().find(|file| file.path == last).unwrap().device;
    let times = profile.recording.devices.iter().find(|times| times.device == device).expect("times of the disk");
    (times.near_ns < 1_500_000).then(|| seeks(times.far_ns, times.near_ns, None))
}

/// Regression: a rotating disk whose used files lie close together was taken for a fast one, and read in order of first use.
#[test]
fn recording_knows_a_rotating_disk_by_close_and_by_wide_files() {
    for model in ["hdd", "ssd", "cloud"] {
        let Some(disk) = Disk::like(model, "times") else { return };
        let close = |index: u64| disk.mount.join(format!("close{index:02}")).to_str().unwrap().to_owned();
        for index in 0..100 {
            fs::write(close(index), vec![index as u8; 16 << 10]).unwrap();
        }
        let program = ["cat".to_owned()].into_iter().chain((0..100).map(|index| close(index * 37 % 100)));
        let programs = [program.collect(), disk.program()];
        let taken = programs.map(|program: Vec<String>| is_taken_for_rotating(&disk, &program));
        for taken in taken.into_iter().flatten() {
            assert_eq!(taken, model == "hdd", "{model}");
        }
    }
}
