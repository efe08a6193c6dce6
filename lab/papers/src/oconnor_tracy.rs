//! Kevin O'Connor and Greg Tracy, "Addressing Large Sequential Read Performance in Linux's Ext2 Filesystem" (2000). Its claims:
//! `oconnor_tracy/claims.toml`.

use crate::Paper;
use crate::claims::Claims;

pub(crate) const PAPER: Paper = Paper {
    name: "oconnor-tracy",
    title: "Addressing Large Sequential Read Performance in Linux's Ext2 Filesystem",
    authors: "Kevin O'Connor and Greg Tracy",
    year: 2000,
    story: "A program that maps a file of 100 MB and copies each byte runs on Linux 2.2 at a quarter of the speed of another \
            system. The authors let it advise how much is read ahead on a miss, find that large amounts are bad, and \
            write a read-ahead that also checks on hits and never waits for the queue. Their machine runs here with both, with \
            every amount, and answers their open questions.",
    run: |measured| CLAIMS.run(measured),
};

const CLAIMS: Claims = Claims {
    paper: PAPER.name,
    text: include_str!("../oconnor_tracy/claims.toml"),
    files: &[
        ("mmapit-pio.toml", include_str!("../oconnor_tracy/mmapit-pio.toml")),
        ("mmapit.toml", include_str!("../oconnor_tracy/mmapit.toml")),
        ("sort.toml", include_str!("../oconnor_tracy/sort.toml")),
    ],
    experiments: &[],
};
