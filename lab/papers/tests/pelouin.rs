//! The verdicts on Pelouin's paper. A change of the simulator that breaks a line fails here.

mod common;
mod steady;

use ahead_papers::Measured;

#[test]
fn every_line_comes_to_what_it_came_to() {
    let measured = Measured { live: Some(&steady::Steady), boots: None };
    let outcome = common::check(
        "pelouin",
        &measured,
        18,
        &[
            ("4: BLKRAGET reports the read-ahead", "not-shown"),
            ("abstract: read-ahead hides the layout", "differs"),
            ("the graph continues linearly after 4 MB", "not-shown"),
        ],
    );
    assert_eq!(outcome.lines.iter().filter(|line| line.live.is_some()).count(), 5);
}

#[test]
fn all_five_figures_are_drawn() {
    let outcome = ahead_papers::named("pelouin").unwrap().run(&ahead_papers::Measured::default()).unwrap();
    let titles: Vec<&str> = outcome.figures.iter().map(|figure| figure.title.as_str()).collect();
    assert_eq!(titles, ["Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 5"]);
}
