fn main() {
    for p in ahead_papers::PAPERS {
        if std::env::args().nth(1).is_some_and(|n| n != p.name) {
            continue;
        }
        let t = std::time::Instant::now();
        let o = p.run(None).unwrap();
        for l in &o.lines {
            println!(
                "{:?}\n  claim {}\n  quoted {}\n  ours   {}\n  tol    {}",
                l.verdict, l.claim, l.quoted, l.ours, l.tolerance
            );
        }
        println!("{:?}", t.elapsed());
    }
}
