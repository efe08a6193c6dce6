//! Gérard Roudier, "Asynchronous read-ahead" (1996). Its claims: `roudier/claims.toml`.

use crate::Paper;
use crate::claims::Claims;

/// The message.
pub(crate) const PAPER: Paper = Paper {
    name: "roudier",
    title: "Asynchronous read-ahead",
    authors: "Gérard Roudier",
    year: 1996,
    story: "Linux 1.3 reads ahead only while a program waits anyway: disk and processor take turns. Roudier estimates the \
            cost, writes the first patch that reads ahead while the program computes, and measures it with Bonnie. Both \
            kernels run here as policies (linux-1.3, roudier), on the machine of the estimate and on the measured one.",
    run: |measured| CLAIMS.run(measured),
};

const CLAIMS: Claims = Claims {
    paper: PAPER.name,
    text: include_str!("../roudier/claims.toml"),
    files: &[
        ("estimate.toml", include_str!("../roudier/estimate.toml")),
        ("per-char.toml", include_str!("../roudier/per-char.toml")),
        ("block.toml", include_str!("../roudier/block.toml")),
        ("rewrite.toml", include_str!("../roudier/rewrite.toml")),
        ("write.toml", include_str!("../roudier/write.toml")),
    ],
    experiments: &[],
};
