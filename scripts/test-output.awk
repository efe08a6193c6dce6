# Reads the output of `cargo test -- --show-output` as it comes, and passes on what a person wants to see: each test and
# its verdict, all output of failed tests, and of passed tests only `skipped: why`, which a test prints when it lacks what
# it needs. Each skipped or ignored test goes to the file `skips`, its name first. At the end the sums over all test binaries
# go to the file `sums`: passed, failed, skipped. What failed tests printed goes to the file `failures`, too, at most 60 lines of each.

/^test .* \.\.\. ignored/ { print $2, $4, $5, $6, $7, $8, $9 >>skips }

/^successes:$/ { quiet = 1; next }
/^failures:$/ { quiet = 0; left = 0 }
/^---- .* stdout ----$/ { left = quiet ? 0 : 60 }

/^test result: / {
    quiet = left = 0
    passed += $4
    failed += $6
    skipped += $8
}

quiet {
    if ($0 ~ /^---- .* stdout ----$/) { test = $2; told = 0 }
    if ($0 ~ /^skipped[: ]/ && !told) {
        told = 1
        skipped++
        passed--
        print test " " $0
        print test " " $0 >>skips
        fflush()
    }
    next
}

left-- > 0 { print >>failures }

{ print; fflush() }

END { print passed + 0, failed + 0, skipped + 0 >sums }
