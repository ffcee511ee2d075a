"""Hours, cores, storage and cost to prepare a large set, from the rates of ``engines.jsonl`` and prices that you give.

Nothing is measured here. Every row of the table is arithmetic on a measured number and an argument.

    python at_scale.py [--clips 10_000_000] [--cores 2048] [--core-hour 0.04] [--gb-month 0.023] [--writes 0.005]
"""

import argparse
import json
from pathlib import Path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=2048, help="cores of the cluster")
    parser.add_argument("--core-hour", type=float, default=0.04, help="price of a core for an hour")
    parser.add_argument("--gb-month", type=float, default=0.023, help="price of a GB of storage for a month")
    parser.add_argument("--writes", type=float, default=0.005, help="price of 1,000 files written to a store")
    parser.add_argument("--line", type=int, default=0, help="which line of engines.jsonl")
    given = parser.parse_args()
    lines = Path(__file__).with_name("engines.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(lines[given.line])
    clips, book = given.clips, json.loads(lines[-1])["bookkeeping"]
    per_file = found["cpu_seconds_per_file"]
    seconds = max(spread["median"] for way, spread in per_file.items() if way.startswith("local"))
    hours = clips * seconds / 3600
    read, written = (clips * found[key] / 1e9 for key in ("source_bytes", "output_bytes"))
    per_job = {way: cost + book["note_seconds"] for way, cost in found["main_process_cpu_seconds_per_job"].items()}
    rows = [
        ("a clip", f"{found['frames']} frames of {found['source_bytes'] / 1e3:.0f} kB, {seconds:.2f} core seconds"),
        ("core hours", f"{hours:,.0f}"),
        (f"hours on {given.cores:,} cores", f"{hours / given.cores:.1f}, if reading keeps up"),
        ("read", f"{read:,.0f} GB; {read / (hours / given.cores) / 3600:.2f} GB/s over these hours"),
        ("written", f"{written:,.0f} GB"),
        ("computing", f"{hours * given.core_hour:,.0f} at {given.core_hour} per core hour"),
        ("requests", f"{clips / 1e3 * given.writes:,.0f} at {given.writes} per 1,000 files written"),
        ("storage", f"{written * given.gb_month:,.0f} a month at {given.gb_month} per GB"),
        ("journal, index", f"{clips * book['journal_bytes'] / 1e9:.1f} GB, {clips * book['index_bytes'] / 1e9:.1f} GB"),
        ("merge, one core", f"{clips * book['merge_seconds'] / 3600:.1f} hours"),
        ("merge, memory of the records", f"{clips * book['merge_bytes'] / 1e9:.0f} GB"),
        *(
            (f"cores that one command feeds ({way})", f"{seconds / cost:,.0f}")
            for way, cost in per_job.items()
            if not way.startswith("direct")
        ),
    ]
    print("| | |\n|---|---:|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
