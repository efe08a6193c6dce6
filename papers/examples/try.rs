fn main() {
    let path = std::env::args().nth(1).unwrap();
    let s = ahead_sim::Scenario::load(path.as_ref()).unwrap();
    for c in &s.policies {
        let t = std::time::Instant::now();
        let k = s.run(c).unwrap();
        println!(
            "{c}: {:.3} s, {:.1} KB/s, lat {:.1} ms, thrash {} decisions {} issued {} used {} wasted {} unread {} hits {} locked {} misses {} dev {:?} took {:?}",
            k.elapsed_ns as f64 / 1e9,
            k.throughput_bytes_per_s() / 1024.,
            k.latency_most_ns as f64 / 1e6,
            k.thrashings,
            k.decisions,
            k.issued_pages,
            k.used_pages,
            k.wasted_pages,
            k.unread_pages,
            k.hits,
            k.locked,
            k.misses,
            k.device,
            t.elapsed()
        );
    }
}
