use super::*;
use crate::AppStart;
use crate::key::AppVersion;
use proptest::prelude::*;

/// A program whose cold starts wait for `alone_us` without a prefetch, and for `with_us` with one.
struct SimulatedApp {
    alone_us: u64,
    with_us: u64,
    choice: UserChoice,
    history: History,
    recordings: usize,
    done: Vec<StartDecision>,
}

impl SimulatedApp {
    fn new(alone_us: u64, with_us: u64) -> SimulatedApp {
        let (choice, history) = (UserChoice::None, History::default());
        SimulatedApp { alone_us, with_us, choice, history, recordings: 0, done: Vec::new() }
    }

    fn start(&mut self, is_cold: bool, is_covered: bool) -> StartDecision {
        let limits = WaitLimits::default();
        let absent_percent = (self.recordings > 0).then_some(if is_cold { 80 } else { 0 });
        let (recordings, situation) = (self.recordings, StartSituation { is_covered, ..StartSituation::default() });
        let situation = StartSituation { recordings, absent_percent, ..situation };
        let decision = decide(&self.history, self.choice, &situation, &limits);
        let waited_us = match (is_cold, decision.treatment) {
            (false, _) => 0,
            (true, Treatment::Prefetched) => self.with_us,
            (true, _) => self.alone_us,
        };
        let (treatment, elapsed_us) = (decision.treatment, 50_000 + waited_us);
        let start = AppStart { treatment, absent_percent, waited_us, elapsed_us, ..AppStart::default() };
        self.history.add(start, 0, limits.is_wait(waited_us, elapsed_us));
        if decision.is_recorded {
            self.recordings += 1;
            self.history.recorded();
        }
        self.done.push(decision);
        decision
    }

    fn cold(&mut self, starts: usize) -> Vec<Treatment> {
        (0..starts).map(|_| self.start(true, false).treatment).collect()
    }
}

#[test]
fn third_start_of_a_program_that_waits_is_prefetched() {
    use Treatment::{LeftAlone, Observed, Plain, Prefetched};
    let mut app = SimulatedApp::new(80_000, 10_000);
    let expected =
        [Plain, Observed, Prefetched, Prefetched, Prefetched, LeftAlone, Prefetched, Prefetched, Prefetched, LeftAlone];
    assert_eq!(app.cold(10), expected);
    // Twice it was recorded: the second start taught more.
    assert_eq!(app.recordings, 2);
    let left_alone: Vec<usize> = (10..300).filter(|_| app.cold(1) == [LeftAlone]).collect();
    assert!(left_alone.windows(2).skip(4).all(|pair| pair[1] - pair[0] == LAST_INTERVAL as usize), "{left_alone:?}");
}

#[test]
fn program_that_does_not_wait_is_left_as_it_is() {
    let mut app = SimulatedApp::new(9_000, 0);
    assert_eq!(app.cold(20), [Treatment::Plain; 20]);
    assert_eq!(app.done[1].reason, DecisionReason::FewWaits);
    let limits = WaitLimits { share_percent: 50, least_us: 0 };
    assert!(limits.is_wait(51, 100) && !limits.is_wait(50, 100) && !limits.is_wait(0, 0));
    assert!(!limits.is_wait(1, u64::MAX) && limits.is_wait(u64::MAX, u64::MAX));
}

#[test]
fn program_without_gain_is_switched_off_until_an_update() {
    let version = |inode| AppVersion { inode, ..AppVersion::default() };
    for with_us in [80_000, 76_000, 200_000] {
        let mut app = SimulatedApp::new(80_000, with_us);
        app.history.see_version(version(1));
        app.cold(20);
        let last = app.done.last().unwrap();
        assert!(matches!(last.reason, DecisionReason::NoGain(_)), "{with_us}: {last:?}");
        assert_eq!(last.treatment, Treatment::Plain);
        app.history.see_version(version(2));
        let asked_again = app.start(true, false);
        assert_eq!((asked_again.treatment, asked_again.reason), (Treatment::Prefetched, DecisionReason::Updated));
        assert!(asked_again.is_recorded);
    }
    // 6 ms are enough for a short start, and 2 % of a long one.
    let mut long = SimulatedApp::new(1_000_000, 980_000);
    long.cold(20);
    assert!(matches!(long.done.last().unwrap().reason, DecisionReason::NoGain(_)));
}

#[test]
fn pinned_profile_stays_on_and_is_not_recorded() {
    let mut app = SimulatedApp::new(80_000, 80_000);
    (app.choice, app.recordings) = (UserChoice::Pinned, 1);
    let treatments = app.cold(40);
    assert_eq!((app.recordings, treatments.contains(&Treatment::Plain)), (1, false));
    assert!(too_little_gain(&app.history).is_some());
}

#[test]
fn profile_is_recorded_again_when_it_has_aged() {
    let app = || {
        let mut app = SimulatedApp::new(80_000, 10_000);
        app.cold(9);
        app
    };
    let reason = |app: &mut SimulatedApp| app.start(true, false).reason;
    assert_eq!(reason(&mut app()), DecisionReason::Comparison(4));
    let mut waits = app();
    waits.with_us = 60_000;
    assert_eq!((0..4).map(|_| reason(&mut waits)).last(), Some(DecisionReason::WaitsAgain));
    let mut stale = app();
    stale.history.recent.iter_mut().for_each(|start| start.stale_percent = 11);
    reason(&mut stale);
    assert_eq!(reason(&mut stale), DecisionReason::Stale);
    let mut old = app();
    old.history.starts_since_recording = RECORD_EVERY;
    reason(&mut old);
    assert_eq!(reason(&mut old), DecisionReason::Old);
    let situation = StartSituation { recordings: 2, is_new_variant: true, ..StartSituation::default() };
    let decision = decide(&app().history, UserChoice::None, &situation, &WaitLimits::default());
    assert_eq!((decision.reason, decision.is_recorded), (DecisionReason::NewVariant, true));
}

#[test]
fn nothing_is_done_while_the_service_is_off() {
    let situation = StartSituation { is_off: true, recordings: 8, absent_percent: Some(100), ..Default::default() };
    for choice in [UserChoice::None, UserChoice::Pinned] {
        let decision = decide(&History::default(), choice, &situation, &WaitLimits::default());
        assert_eq!((decision.treatment, decision.reason), (Treatment::Plain, DecisionReason::Off));
    }
}

proptest! {
    #[test]
    fn excluded_program_is_never_touched(starts in prop::collection::vec(any::<(bool, bool)>(), 1..60), at in 0usize..60) {
        let mut app = SimulatedApp::new(80_000, 1_000);
        for (index, (is_cold, is_covered)) in starts.into_iter().enumerate() {
            app.choice = if index >= at { UserChoice::Excluded } else { UserChoice::None };
            let decision = app.start(is_cold, is_covered);
            prop_assert!(index < at || decision.treatment == Treatment::Plain && !decision.is_recorded);
        }
    }

    /// Noise of a tenth of the waits, warm and covered starts between the cold ones.
    #[test]
    fn gain_decides_whether_a_program_stays_on(
        starts in prop::collection::vec((any::<bool>(), 0u8..8, 0u64..8_000), 300..400),
        alone_us in 80_000u64..400_000,
        has_gain in any::<bool>(),
    ) {
        let with_us = if has_gain { alone_us / 4 } else { alone_us };
        let mut app = SimulatedApp::new(alone_us, with_us);
        app.cold(2);
        let (mut cold, mut alone) = (0u32, 0u32);
        for (is_cold, covered, noise) in starts {
            (app.alone_us, app.with_us) = (alone_us + noise, with_us + noise / 2);
            if !has_gain {
                app.with_us += 8_000;
            }
            let decision = app.start(is_cold, covered == 0);
            let is_off = matches!(decision.reason, DecisionReason::NoGain(_));
            prop_assert!(!(has_gain && is_off));
            if is_cold && matches!(decision.treatment, Treatment::Prefetched | Treatment::LeftAlone) {
                cold += 1;
                alone += u32::from(decision.treatment == Treatment::LeftAlone);
                prop_assert!(alone <= cold / FIRST_INTERVAL + 1);
            }
        }
        app.start(true, false);
        prop_assert_eq!(matches!(app.done.last().unwrap().reason, DecisionReason::NoGain(_)), !has_gain);
    }
}
