//! What Wu's reasons come to: a change of the simulator that breaks a line is noticed here.

mod common;

#[test]
fn every_line_comes_to_what_it_came_to() {
    common::check(
        "wu",
        100,
        &[
            ("HP EVA, 1 reader: worst latency with windows of 128 KB", "differs"),
            ("HP EVA, 1 reader: worst latency with windows of 512 KB", "differs"),
            ("striped SATA, 1 reader: worst latency with windows of 128 KB", "differs"),
            ("striped SATA, 1 reader: worst latency with windows of 512 KB", "differs"),
            ("striped SATA, 2 readers: worst latency with windows of 128 KB", "differs"),
            ("striped SATA, 16 readers: worst latency with windows of 128 KB", "differs"),
            ("striped SATA, 16 readers: worst latency with windows of 512 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 128 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 512 KB", "differs"),
            ("under X: read-ahead hit ratio with windows of 1024 KB", "differs"),
            ("under X: memory footprint", "differs"),
            ("console: read-ahead hit ratio with windows of 128 KB", "differs"),
            ("console: read-ahead hit ratio with windows of 1024 KB", "differs"),
            ("console: memory footprint", "differs"),
            ("streams up to which the stock kernel does not thrash", "differs"),
        ],
    );
}
