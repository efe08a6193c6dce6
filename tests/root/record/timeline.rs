//! The program's own timeline: sleeps and other threads count, waits for the disk do not.

use super::perl_read;
use super::rig::{Home, entry, needs_recorder, volume};
use ahead_profile::{Profile, TimelineSource, WarmUse};
use ahead_tests::rig::prelude::*;

/// The first use of a file on the timeline.
fn warm_use(profile: &Profile, path: &Path) -> WarmUse {
    entry(profile, path).extents[0].warm_use.unwrap_or_else(|| panic!("{} is not on the timeline", path.display()))
}

#[test]
fn sleeps_and_other_threads_are_on_the_timeline() {
    let Some(volume) = volume("ext4") else { return };
    let [first, second, third] = ["first", "second", "third"].map(|name| volume.pages(name, 8));
    let (read_first, read_second, read_third) =
        (perl_read(&first, 0, PAGE), perl_read(&second, 0, PAGE), perl_read(&third, 0, PAGE));
    // The parent sleeps, then waits for its child by a pipe. The child waits for the disk meanwhile, and writes only when the parent sleeps:
    // where the processors are busy, it may be faster than the parent, which then waits for nothing.
    let parent_sleeps = "do { open(F,'/proc/'.getppid().'/stat'); $s=<F>; close(F) } until $s=~/\\) S /;";
    let script = format!(
        "{read_first} select(undef,undef,undef,0.2); pipe(R,W); \
         if(!fork){{ {read_second} {parent_sleeps} syswrite(W,'x'); exit }} sysread(R,$b,1); {read_third} wait"
    );
    let home = Home::new();
    let (_, profile) = home.record(&["--cold"], &["perl", "-e", &script]);
    let timeline = profile.timeline.as_deref().expect("a recording by BPF has a timeline");
    let [first, second, third] = [first, second, third].map(|path| warm_use(&profile, &path));
    assert_eq!(timeline.source, TimelineSource::ProcessorClocks);
    assert!(second.time_us >= first.time_us + 200_000, "{first:?} {second:?} {timeline:?}");
    assert!(third.time_us >= second.time_us, "{second:?} {third:?}");
    assert_eq!((first.thread, third.thread), (0, 0));
    let child = timeline.threads[second.thread as usize];
    assert_eq!(child.parent, Some(0));
    assert!((first.cpu_us..=third.cpu_us).contains(&child.parent_cpu_us), "{child:?}");
    let woke = |wakeup: &&ahead_profile::Wakeup| (wakeup.by, wakeup.woken) == (second.thread, 0);
    let wakeup = timeline.wakeups.iter().find(woke).expect("the child wakes its parent");
    assert!(wakeup.by_cpu_us >= second.cpu_us && wakeup.woken_cpu_us <= third.cpu_us, "{wakeup:?}");
    // The end of the timeline is that of the run, without waits for the disk.
    assert!((third.time_us..=profile.recording.duration_us).contains(&timeline.warm_us), "{}", timeline.warm_us);
}

#[test]
fn program_that_forks_a_thousand_times_has_a_timeline() {
    let Some(()) = needs_recorder() else { return };
    let home = Home::new();
    let script = "i=0; while [ $i -lt 1000 ]; do true & i=$((i+1)); done; wait";
    let (_, profile) = home.record(&[], &["sh", "-c", script]);
    let timeline = profile.timeline.as_deref().expect("a recording by BPF has a timeline");
    assert_eq!((timeline.threads.len(), profile.recording.lost_events), (1001, 0));
    let shown = ahead(["show", "--timeline", "--json"]).arg(home.profile()).json();
    assert_eq!(shown["timeline"]["threads"].as_array().unwrap().len(), 1001);
}

/// Running processes have no clocks: what they did before is unknown.
#[test]
fn running_processes_have_no_timeline() {
    let Some(()) = needs_recorder() else { return };
    let home = Home::new();
    home.recorder(&["--duration", "100ms", "--pid", &std::process::id().to_string()]).ok();
    assert_eq!(home.load().timeline, None);
    ahead(["show", "--timeline"]).arg(home.profile()).ok().prints("No timeline");
}
