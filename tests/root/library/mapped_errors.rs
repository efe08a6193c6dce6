//! Read errors of the disk in a mapped region that is read ahead.

use super::target::{ColdFile, EIO, KIB, MIB, PAGE, Target, in_child};
use ahead::{Advised, Behaviour, advise_raw};
use ahead_sys::{cache, mapping::Mapping};
use ahead_tests::rig::wait::wait_until;
use std::fs::File;
use std::os::unix::fs::FileExt;

const FILE_BYTES: u64 = 8 * MIB;
const BAD_PAGE: u64 = (5 * MIB + 3 * PAGE) / PAGE;
const PAGES: u64 = FILE_BYTES / PAGE;

fn advise(mapping: &Mapping, behaviour: Behaviour) -> Advised {
    let addresses = mapping.addresses();
    advise_raw(addresses.start, addresses.len(), behaviour, 0).unwrap()
}

fn check_page(file: &ColdFile, mapping: &Mapping, page: u64) {
    let mut bytes = [0; PAGE as usize];
    assert_eq!(mapping.copy((page * PAGE) as usize, &mut bytes), Some(PAGE as usize), "page {page}");
    assert!(bytes == file.page(page), "page {page}");
}

/// Waits until the pages from this one on, 64 KiB, are resident.
fn wait_until_resident(file: &File, page: u64) {
    wait_until("the helper thread reads ahead", || {
        cache::resident_bytes(file, page * PAGE, 64 * KIB).unwrap() == 64 * KIB
    });
}

fn check_counters(advised: &Advised) {
    let counters = advised.counters();
    assert!(counters.groups > 0 && counters.looks > 0, "{counters:?}");
    assert!(counters.waits <= counters.groups, "{counters:?}");
    // Each group is requested, and again when it is entered; what fails is requested again after longer and longer waits.
    assert!(counters.requested_bytes <= 4 * FILE_BYTES, "{counters:?}");
}

#[test]
fn only_the_bad_page_of_a_region_is_lost() {
    let Some(target) = Target::alone("library-eio-map") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    let opened = File::open(&file.path).unwrap();
    for behaviour in [Behaviour::Sequential, Behaviour::Backward, Behaviour::Stride { bytes: 64 << 10 }] {
        target.fail(&file, BAD_PAGE * PAGE, PAGE);
        file.make_cold();
        let mapping = Mapping::new(&opened, FILE_BYTES as usize).unwrap();
        let advised = advise(&mapping, behaviour);
        let good = (0..PAGES).filter(|page| *page != BAD_PAGE);
        match behaviour {
            Behaviour::Backward => good.rev().for_each(|page| check_page(&file, &mapping, page)),
            Behaviour::Stride { bytes } => {
                (0..PAGES).step_by(bytes as usize / PAGE as usize).for_each(|page| check_page(&file, &mapping, page));
            }
            _ => good.for_each(|page| check_page(&file, &mapping, page)),
        }
        check_counters(&advised);
        // SIGBUS, which `Mapping` turns into `None`; in a child, whose copy of the page is then replaced by zeros.
        in_child("an access to the bad page", || {
            assert_eq!(mapping.touch((BAD_PAGE * PAGE) as usize), None, "the bad page");
            check_page(&file, &mapping, BAD_PAGE - 1);
            check_page(&file, &mapping, BAD_PAGE + 1);
        });
        assert_eq!(opened.read_at(&mut [0], BAD_PAGE * PAGE).unwrap_err().raw_os_error(), Some(EIO));
        drop(advised);
        target.heal();
        check_page(&file, &mapping, BAD_PAGE);
    }
}

/// The groups behind the bad page are requested, and the helper thread is still there for the next progress.
#[test]
fn reported_progress_passes_the_bad_page() {
    let Some(target) = Target::new("library-eio-progress") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    target.fail(&file, BAD_PAGE * PAGE, PAGE);
    let opened = File::open(&file.path).unwrap();
    let mapping = Mapping::new(&opened, FILE_BYTES as usize).unwrap();
    let advised = advise(&mapping, Behaviour::Sequential);
    let after = (BAD_PAGE * PAGE).next_multiple_of(MIB) / PAGE;
    for page in [BAD_PAGE - 1, BAD_PAGE, BAD_PAGE + 1, after, after + MIB / PAGE] {
        advised.progress((page * PAGE) as usize);
        if page >= after {
            wait_until_resident(&opened, page);
        }
    }
    check_counters(&advised);
}

/// Pages that do not arrive within a second are requested once more, and then given up.
#[test]
fn request_of_a_whole_region_passes_the_bad_page_and_ends() {
    let Some(target) = Target::new("library-eio-whole") else { return };
    let file = target.cold_file("file", 24 * MIB);
    target.fail(&file, BAD_PAGE * PAGE, PAGE);
    let opened = File::open(&file.path).unwrap();
    let mapping = Mapping::new(&opened, 24 << 20).unwrap();
    let advised = advise(&mapping, Behaviour::WillNeed);
    wait_until_resident(&opened, 0);
    wait_until_resident(&opened, (24 * MIB - 64 * KIB) / PAGE);
    let counters = advised.counters();
    // Pages of other groups may also be absent after a second: those that the kernel has dropped.
    assert!(counters.groups == 24 && (1..=24).contains(&counters.retried), "{counters:?}");
    assert!(counters.requested_bytes <= 48 * MIB, "{counters:?}");
}
