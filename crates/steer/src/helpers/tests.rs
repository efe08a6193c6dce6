//! Helpers that are threads of the tests.

use super::*;
use std::io::Write;
use std::os::fd::AsRawFd;

const PAGE: u64 = 4096;

/// `None`, with the reason printed, where states cannot be read.
fn states() -> Option<StateQuery> {
    StateQuery::new().map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn file(pages: u64) -> File {
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(&vec![7; (pages * PAGE) as usize]).unwrap();
    file.sync_all().unwrap();
    file
}

fn wanted(states: &StateQuery, file: &File) -> Wanted {
    let state = states.of_own(file.as_fd()).unwrap().expect("a regular file has a state");
    let pid = std::process::id();
    let (open, inode, device) = (state.open, state.inode, state.device);
    let target = Target { pid, tid: pid, open, inode, device, ..Target::default() };
    let number = file.as_raw_fd() as u32;
    Wanted { target, number, expected_pages: state.readahead.window_pages, is_quiet_on_close: true }
}

/// A helper under load may start later than an act waits for it.
fn until_answered(helpers: &mut Helpers, wanted: &Wanted) -> std::result::Result<(), Refusal> {
    let began = Instant::now();
    loop {
        let done = helpers.with_taken(wanted, |pages, advise| {
            assert!(pages > 0);
            advise().map_err(|error| Refusal::Failed(error.to_string()))
        });
        if done != Err(Refusal::Queue) {
            return done;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn expected_file_is_held_for_the_act_and_given_back_by_the_same_hand() {
    let Some(states) = states() else { return };
    let (mut helpers, file) = (Helpers::with(Origin::Threads), file(4));
    let wanted = wanted(&states, &file);
    for _ in 0..3 {
        assert_eq!(until_answered(&mut helpers, &wanted), Ok(()));
    }
    let began = Instant::now();
    // On a busy machine, a helper may give its file back after the last act.
    while helpers.held().count() < 3 || helpers.idle.is_empty() || !helpers.busy.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60));
        helpers.prepare();
    }
}

/// Regression: what was taken instead of the expected file was closed by the thread that watches.
#[test]
fn unexpected_file_is_not_closed_and_ends_its_hand() {
    let Some(states) = states() else { return };
    let (mut helpers, file) = (Helpers::with(Origin::Threads), file(4));
    let (mut reader, writer) = std::io::pipe().unwrap();
    let expected = wanted(&states, &file);
    let other = Wanted { number: writer.as_raw_fd() as u32, ..expected };
    assert_eq!(until_answered(&mut helpers, &other), Err(Refusal::Gone));
    assert!(helpers.idle.is_empty());
    // Here the helper is a thread, and its end closes nothing: so nothing was closed.
    drop(writer);
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    let read = std::io::Read::read(&mut reader, &mut [0]);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(until_answered(&mut helpers, &expected), Ok(()));
}

/// Regression: while closes on a file system waited, the thread that watches could be the next to wait.
#[test]
fn hands_that_hang_are_left_and_their_device_waits() {
    let Some(states) = states() else { return };
    let (mut helpers, file) = (Helpers::with(Origin::Threads), file(4));
    let wanted = wanted(&states, &file);
    let mut others = Vec::new();
    for _ in 0..MOST_OF_DEVICE {
        let (ours, theirs) = pair().unwrap();
        let does = Does::Hold { device: wanted.target.device, pid: 1 };
        helpers.busy.push(Helper { socket: ours, does });
        others.push(theirs);
    }
    assert_eq!(helpers.with_taken(&wanted, |_, _| panic!("acted")), Err(Refusal::Queue));
    assert_eq!(helpers.busy.len(), MOST_OF_DEVICE);
    let elsewhere = Target { device: DeviceNumber::new(4095, 1), ..wanted.target };
    assert_eq!(until_answered(&mut helpers, &Wanted { target: elsewhere, ..wanted }), Ok(()));
    // They come back.
    others.iter().for_each(|helper| put(helper.as_fd(), &Answer::GivenBack { held_ns: 7, ends: false }).unwrap());
    assert_eq!(until_answered(&mut helpers, &Wanted { number: 1 << 20, ..wanted }), Err(Refusal::Gone));
}

#[test]
fn pages_of_a_mapping_are_requested() {
    let Some(_) = states() else { return };
    let file = file(64);
    ahead_sys::evict::file(&file).unwrap();
    let resident = || ahead_sys::cache::resident(&file, 0, 64 * PAGE).unwrap();
    if !resident().is_empty() {
        return eprintln!("skipped: the file system keeps pages after POSIX_FADV_DONTNEED");
    }
    let mapping = ahead_sys::mapping::Mapping::new(&file, (64 * PAGE) as usize).unwrap();
    let mapped = Mapped { end_page: 64, address: mapping.addresses().start as u64, ..Mapped::default() };
    let target = Target { pid: std::process::id(), open: 1, ..Target::default() };
    let mut helpers = Helpers::with(Origin::Threads);
    // Pages beyond the mapping are left out.
    helpers.will_need(&target, &mapped, &[8..16, 60..90], 4, ahead_observe::now_ns()).unwrap();
    let began = Instant::now();
    let failures = loop {
        let failures = helpers.take_failures();
        if !failures.is_empty() || helpers.latency().count() == 1 {
            break failures;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    };
    match failures.first() {
        Some(failure) => eprintln!("skipped: {failure:?}"),
        None => assert_eq!(resident(), [8 * PAGE..16 * PAGE, 60 * PAGE..64 * PAGE]),
    }
}
