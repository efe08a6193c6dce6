"""Suite `orders`: reads that the kernel does not recognise, beside what `oracle` gains in the simulator on the same disk."""

import json

from rig import brief
from shared import MIB, ROOT, fail, interleaved, output

BLOCK_KIB, STRIDE_KIB, WINDOW_KIB = 16, 64, 128
ORDERS = ["backward", "stride", "interleaved"]
# Below, the first reads, from which the pattern is learned, would weigh too much: the sizes of bench/sim/workloads.toml. Above, memory.
LEAST_MIB, MOST_MIB = 64, 512
SIMULATED = ["linux-6.18", "oracle", "steer"]


def model_file(place, scratch):
    """The model of the place for the simulator, whose disk of this scenario would be smaller: its heads would move farther."""
    text = (ROOT / f"crates/device/models/{place.model}.toml").read_text()
    if 'kind = "hdd"' in text:
        text += f"\nstroke_gb = {place.size_bytes / 1e9}\n"
    (scratch / "model.toml").write_text(text)
    return "model.toml"


def simulated(bench, place, order, file_mib):
    """Seconds of each policy, for the same disk, file and window."""
    known, scratch = output(bench.programs.ahead, "sim", "policies").split(), bench.programs.home
    policies = [policy for policy in SIMULATED if policy in known]
    stride = f"stride_kb = {STRIDE_KIB}\n" if order == "stride" else ""
    scenario = scratch / "scenario.toml"
    scenario.write_text(f"policies = {json.dumps(policies)}\n[machine]\nmemory_mb = 4096\n[disk]\nmodel = \"{model_file(place, scratch)}\"\n"
                        f"read_ahead_kb = {WINDOW_KIB}\n[[workload]]\npattern = \"{order}\"\nfile_mb = {file_mib}\nblock_kb = {BLOCK_KIB}\n{stride}")
    runs = json.loads(output(bench.programs.ahead, "sim", "run", scenario, "--json"))["policies"]
    return {run["policy"]: run["elapsed_s"] for run in runs}


def size_mib(bench, place, order):
    """A file that stock reads in about `--seconds`."""
    stock_s = simulated(bench, place, order, LEAST_MIB)["linux-6.18"]
    wanted = LEAST_MIB * bench.seconds / stock_s
    return int(min(max(wanted, LEAST_MIB), MOST_MIB)) // LEAST_MIB * LEAST_MIB


def measure(bench, place):
    figures = {}
    for order in filter(bench.is_wanted, ORDERS):
        file_mib = size_mib(bench, place, order)
        file = place.file(f"orders-{file_mib}", file_mib * MIB)

        def read(way, order=order, file=file):
            def victim():
                return bench.programs.report("orders", order, file, BLOCK_KIB, "--stride-kib", STRIDE_KIB)
            return bench.cold(place, way, WINDOW_KIB, victim)

        done = interleaved(bench.ways("stock", "steer"), bench.rounds, read)
        if len({one["checksum"] for results in done.values() for one in results}) != 1:
            fail(f"{order} on {place.model}: the victim read different data")
        if any(one["device_bytes"] < 0.98 * one["bytes"] for results in done.values() for one in results):
            fail(f"{order} on {place.model}: the file was not cold")
        figures[order] = {"file_mib": file_mib, "block_kib": BLOCK_KIB, "stride_kib": STRIDE_KIB if order == "stride" else None,
                          "simulated_s": simulated(bench, place, order, file_mib), "ways": done}
        brief(orders=place.model, order=order, mib=file_mib, **{way: min(one["elapsed_s"] for one in all_of) for way, all_of in done.items()},
              **{f"sim {policy}": s for policy, s in figures[order]["simulated_s"].items()})
    return figures
