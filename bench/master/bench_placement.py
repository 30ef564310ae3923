"""Benchmark of bucket placement for a large job: 1,024 buckets, from 64 servers to 65, of unlike size and load."""

import random

from bench.reporting.result_rows import Row, median_seconds, print_rows
from master.job.placement.owner_placement import Weight, moves, place

BUCKETS, SERVERS = 1_024, 64


def main() -> None:
    chance = random.Random(1)  # noqa: S311 - a benchmark, no secret
    weights = [
        Weight(size_bytes=chance.randint(4_000_000, 4_100_000), load=chance.paretovariate(1.5)) for _ in range(BUCKETS)
    ]
    before = place(BUCKETS, SERVERS, weights=weights)

    def grow() -> None:
        moves(before, place(BUCKETS, SERVERS + 1, before, weights=weights))

    print_rows(
        [
            Row(
                name="placement, 1,024 buckets of unlike load, 64 servers to 65, with its moves",
                value=median_seconds(grow, number=10) * 1e3,
                unit="ms",
                goal="<= 10",
            )
        ]
    )


if __name__ == "__main__":
    main()
