"""Suite `faults`: a random reader of a mapped file that is larger than its memory, beside the same program with MADV_RANDOM."""

from rig import brief
from shared import MIB, Group, interleaved

FILE_MIB, GROUP_MIB = 1024, 256
# More than any run reaches.
COUNT = 200_000
WINDOWS_KIB = [128, 8192]


def measure(bench, place):
    file, figures = place.file("faults", FILE_MIB * MIB), {}
    with Group("steer-faults") as group:
        group.limit(GROUP_MIB * MIB)
        for window_kib in WINDOWS_KIB:
            if not bench.is_wanted(str(window_kib)):
                continue

            def touch(way, window_kib=window_kib):
                advice = ["--advise", "random"] if way == "MADV_RANDOM" else []

                def victim():
                    report = bench.programs.report("faults", file, COUNT, "--seconds", bench.seconds, "--stat", place.stat_path, *advice, group=group)
                    # The name that bench.cold uses for the whole run.
                    report["counted_bytes"] = report.pop("device_bytes")
                    return report
                return bench.cold(place, way, window_kib, victim)

            done = interleaved(bench.ways("stock", "steer", "MADV_RANDOM"), bench.rounds, touch)
            figures[window_kib] = done
            brief(faults=place.model, window=window_kib, **{
                way: f"{all_of[-1]['us_per_fault']:.1f} µs × {all_of[-1]['counted_bytes'] / all_of[-1]['faults'] / 4096:.2f}"
                for way, all_of in done.items()})
    return {"file_mib": FILE_MIB, "group_mib": GROUP_MIB, "windows": figures}
