//! The verdicts on Wu's reasons. A change of the simulator that breaks a line fails here.

mod common;
mod steady;

use ahead_papers::Measured;

#[test]
fn every_line_comes_to_what_it_came_to() {
    let measured = Measured { live: Some(&steady::Steady), boots: None };
    let outcome = common::check(
        "wu",
        &measured,
        117,
        &[
            ("table: highly concurrent sequential I/O with windows of 128 KB (64 streams)", "differs"),
            ("table: highly concurrent sequential I/O with windows of 512 KB (64 streams)", "differs"),
            ("SSD: windows of 4k", "differs"),
            ("SSD: windows of 16k", "differs"),
            ("SSD: windows of 32k", "differs"),
            ("SSD: windows of 64k", "differs"),
            ("SSD: windows of 128k", "differs"),
            ("SSD: windows of 256k", "differs"),
            ("SSD: windows of 512k", "differs"),
            ("SSD: windows of 4M", "not-shown"),
            ("SSD: the longer the window, the faster, up to 4M", "differs"),
            ("SSD, if each window is waited for: windows of 4k", "not-shown"),
            ("SSD, if each window is waited for: windows of 64k", "not-shown"),
            ("SSD, if each window is waited for: windows of 4M", "not-shown"),
            ("HP EVA, 1 reader: bandwidth with windows of 128 KB", "not-shown"),
            ("HP EVA, 1 reader: worst latency with windows of 128 KB", "differs"),
            ("HP EVA, 1 reader: bandwidth with windows of 512 KB", "not-shown"),
            ("HP EVA, 1 reader: worst latency with windows of 512 KB", "differs"),
            ("HP EVA, 1 reader: gain of 512 KB over 128 KB", "not-shown"),
            ("HP EVA, 2 readers: bandwidth with windows of 128 KB", "not-shown"),
            ("striped SATA, 1 reader: bandwidth with windows of 128 KB", "not-shown"),
            ("striped SATA, 1 reader: bandwidth with windows of 512 KB", "not-shown"),
            ("striped SATA, 1 reader: gain of 512 KB over 128 KB", "not-shown"),
            ("striped SATA, 2 readers: bandwidth with windows of 128 KB", "not-shown"),
            ("striped SATA, 8 readers: bandwidth with windows of 512 KB", "differs"),
            ("striped SATA, 16 readers: bandwidth with windows of 128 KB", "differs"),
            ("striped SATA, 16 readers: worst latency with windows of 128 KB", "differs"),
            ("striped SATA, 16 readers: bandwidth with windows of 512 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 128 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 512 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 1024 KB", "differs"),
            ("under X: memory footprint with windows of 1024 KB against 128 KB", "differs"),
            ("console: read-ahead hit ratio with windows of 128 KB", "differs"),
            ("console: read-ahead hit ratio with windows of 1024 KB", "differs"),
            ("console: memory footprint with windows of 1024 KB against 128 KB", "differs"),
            ("streams up to which the stock kernel does not thrash, 64 MB all page cache", "differs"),
        ],
    );
    assert_eq!(outcome.lines.iter().filter(|line| line.live.is_some()).count(), 61);
}
