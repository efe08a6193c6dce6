//! The table of sizes: throughput and latency of a disk of 8 ms and 100 MB/s.

use crate::{Asked, Axis, Bound, Figure, Filesystem, Lines, Live, Measure, Outcome, PaperError, Plot};
use crate::{in_parallel, policy, scenario, series};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Op, Pattern, Program, Scenario, Stream};

/// Size of the reads (KB), transfer (ms), latency (ms), utilisation (%) and throughput (KB/s), as printed.
const TABLE: [(u64, &str, &str, &str, &str); 11] = [
    (4, "0.04", "8.04", "0.49", "497.57"),
    (8, "0.08", "8.08", "0.97", "990.33"),
    (16, "0.16", "8.16", "1.92", "1961.69"),
    (32, "0.31", "8.31", "3.76", "3849.62"),
    (64, "0.62", "8.62", "7.25", "7420.29"),
    (128, "1.25", "9.25", "13.51", "13837.84"),
    (256, "2.50", "10.50", "23.81", "24380.95"),
    (512, "5.00", "13.00", "38.46", "39384.62"),
    (1024, "10.00", "18.00", "55.56", "56888.89"),
    (2048, "20.00", "28.00", "71.43", "73142.86"),
    (4096, "40.00", "48.00", "83.33", "85333.33"),
];
/// Reads of each size.
const READS: u64 = 64;
/// Reads of each size against the real page cache, where a run takes real time.
const LIVE_READS: u64 = 15;
/// Tolerance between the latency of a live row and ours. The emulated disk keeps the model's time within this share
/// (`ahead disk`).
const LIVE_TOLERANCE: f64 = 0.05;
/// Wu's access time, nanoseconds.
const ACCESS_NS: f64 = 8e6;
/// Streams that represent "highly concurrent": at this number no stream's next window follows its last one on the
/// disk.
const CONCURRENT: usize = 64;

/// The result of one size.
struct Row {
    latency_ms: f64,
    transfer_ms: f64,
    used_percent: f64,
    kb_per_s: f64,
}

/// Non-contiguous reads: block by block from the file's end to its beginning.
fn scattered(io_pages: u64) -> Program {
    let (open, file) = (OpenId(0), FileId(0));
    let length_bytes = io_pages * PAGE_BYTES;
    let read =
        move |index: u64| Op::Read { open, file, offset_bytes: 2 * (READS - index) * length_bytes, length_bytes };
    let ops = std::iter::once(Op::Open { open, file }).chain((0..READS).map(read));
    Program { ops: Box::new(ops), user_per_page_ns: 0.0 }
}

fn row(machine: &Scenario, io_kb: u64) -> Result<Row, PaperError> {
    let io_pages = io_kb * 1024 / PAGE_BYTES;
    let file_pages = 2 * (READS + 1) * io_pages;
    let program = scattered(io_pages);
    let counters = machine.machine_for(&policy("linux-2.6.23")?, &[file_pages], vec![program])?.run();
    let latency_ns = counters.elapsed_ns as f64 / READS as f64;
    let transfer_ns = latency_ns - ACCESS_NS;
    Ok(Row {
        latency_ms: latency_ns / 1e6,
        transfer_ms: transfer_ns / 1e6,
        used_percent: 100.0 * transfer_ns / latency_ns,
        kb_per_s: counters.throughput_bytes_per_s() / 1024.0,
    })
}

/// Latency against the real page cache, ms: the median of some reads from the file's end to its beginning.
fn live_row(machine: &Scenario, io_kb: u64, live: &dyn Live) -> Result<f64, PaperError> {
    let mut machine = machine.clone();
    let block_pages = io_kb * 1024 / PAGE_BYTES;
    let (file_pages, call_bytes) = (LIVE_READS * block_pages, block_pages * PAGE_BYTES);
    let stream =
        Stream { pattern: Pattern::Backward, file_pages, block_pages, call_bytes, ..machine.workloads[0].streams[0] };
    machine.workloads[0].streams = vec![stream];
    let filesystem = Filesystem { name: "ext4", block_bytes: PAGE_BYTES };
    let mut each_ns = live.run(&Asked { scenario: &machine, filesystem, each: true })?.each_ns;
    each_ns.sort_unstable();
    Ok(each_ns.get(each_ns.len() / 2).map_or(f64::NAN, |ns| *ns as f64 / 1e6))
}

pub(super) fn run(outcome: &mut Outcome, lines: &mut Lines, live: Option<&dyn Live>) -> Result<(), PaperError> {
    let machine = scenario("wu/table.toml", include_str!("../../wu/table.toml"))?;
    outcome.input("Wu's disk: access time", "8 ms", "the paper");
    outcome.input(
        "Wu's disk: transfer",
        "100 MB/s with a megabyte of 2^20 bytes",
        "the paper; its digits need this unit (128 KB in 1.25 ms)",
    );
    let sizes = TABLE.map(|(io_kb, ..)| io_kb);
    let rows: Vec<Row> = in_parallel(&sizes, |io_kb| row(&machine, *io_kb)).into_iter().collect::<Result<_, _>>()?;
    for (row, (io_kb, transfer, latency, used, throughput)) in rows.iter().zip(TABLE) {
        let show = |transfer: &str, latency: &str, used: &str, throughput: &str| {
            format!("transfer {transfer} ms, latency {latency} ms, {used} %, {throughput} KB/s")
        };
        let quoted = show(transfer, latency, used, throughput);
        let two = |value: f64| format!("{value:.2}");
        // 0.625 and 8.625 were rounded to even: printf does so with values that are exact in binary.
        let ours = show(&two(row.transfer_ms), &two(row.latency_ms), &two(row.used_percent), &two(row.kb_per_s));
        let holds = ours == quoted;
        let seen = live.map(|live| live_row(&machine, io_kb, live)).transpose()?.map(|latency_ms| {
            let text = format!("latency {latency_ms:.2} ms, {:.2} KB/s", io_kb as f64 * 1e3 / latency_ms);
            (text, (latency_ms / row.latency_ms - 1.0).abs() <= LIVE_TOLERANCE)
        });
        let claim = format!("table: random reads of {io_kb} KB");
        lines.shape(&claim, &quoted, ours, holds, "exact, every digit printed").live_shape(seen);
    }
    outcome.figures.push(figure(&rows));
    add_boost(&rows, lines);
    add_concurrent(&machine, lines)
}

fn figure(rows: &[Row]) -> Figure {
    let sizes = || TABLE.iter().map(|(io_kb, ..)| *io_kb as f64);
    Figure {
        title: "The table of sizes".into(),
        caption: "Throughput and latency of the disk of 8 ms and 100 MB/s: random reads, simulated.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("size of a read, KB"),
            y: Axis::logarithmic("KB/s, and microseconds"),
            series: vec![
                series("throughput, KB/s", sizes().zip(rows.iter().map(|row| row.kb_per_s))),
                series("latency, us", sizes().zip(rows.iter().map(|row| 1e3 * row.latency_ms))),
            ],
        },
    }
}

fn add_boost(rows: &[Row], lines: &mut Lines) {
    let (small, large) = (&rows[5], &rows[7]);
    let mb = |row: &Row| row.kb_per_s / 1000.0;
    let ours =
        format!("{:.1} to {:.1} MB/s, {:.2} to {:.2} ms", mb(small), mb(large), small.latency_ms, large.latency_ms);
    let throughput = (13.0..14.0).contains(&mb(small)) && (39.0..40.0).contains(&mb(large));
    let latency = [(small, 9.25), (large, 13.0)].iter().all(|(row, ms)| (row.latency_ms - ms).abs() < 0.005);
    let quoted = "~13 to ~39 MB/s, 9.25 to 13 ms";
    lines.shape(
        "128 KB to 512 KB: throughput and latency",
        quoted,
        ours,
        throughput && latency,
        "throughput: in whole megabytes, as after ~; latency: every digit printed",
    );
}

/// "Or highly concurrent sequential IO": windows of many streams in turn. At a marked page the reader requests the next
/// window before it waits for that page. So up to two windows of a stream are served together.
fn add_concurrent(machine: &Scenario, lines: &mut Lines) -> Result<(), PaperError> {
    let windows = [(128, 13837.84), (512, 39384.62)];
    let run = |(window_kb, _): &(u64, f64)| -> Result<f64, PaperError> {
        let mut machine = machine.clone();
        machine.memory_pages = (256 << 20) / PAGE_BYTES;
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        machine.disk.longest_bytes = Some(window_kb * 1024);
        machine.disk.scheduler = Some(ahead_sim::Scheduler::None);
        let stream = Stream {
            pattern: Pattern::Sequential,
            file_pages: (32 << 20) / PAGE_BYTES,
            block_pages: 8,
            ..machine.workloads[0].streams[0]
        };
        machine.workloads[0].streams = vec![stream; CONCURRENT];
        Ok(machine.run(&policy("linux-2.6.23")?)?.throughput_bytes_per_s() / 1024.0)
    };
    for (result, (window_kb, one)) in in_parallel(&windows, run).into_iter().zip(windows) {
        lines.number(
            &format!("table: highly concurrent sequential I/O with windows of {window_kb} KB ({CONCURRENT} streams)"),
            &format!("{one} KB/s"),
            Measure::new(result?, "KB/s", 0),
            Bound::Within(one, 0.05),
            "the paper's calculation has one window for each access of the disk, and a file begins with smaller windows; a stream \
             that waits at a marked page has requested two",
        );
    }
    Ok(())
}
