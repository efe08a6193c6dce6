fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let s = ahead_sim::Scenario::from_toml(&text, ".".as_ref()).unwrap();
    for c in &s.policies {
        let (k, calls) = s.run_with_calls(c).unwrap();
        println!("{c} {k:?}");
        for f in calls.iter().take(std::env::args().nth(2).map_or(0, |n| n.parse().unwrap())) {
            println!("{} {} {} {}", f.process, f.offset_bytes / 4096, f.began_ns, f.ended_ns - f.began_ns);
        }
    }
}
