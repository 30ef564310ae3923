"""Benchmark of position sets for a large job: 10^9 samples with 1,000 ranges missing."""

from bench.reporting.result_rows import Row, median_seconds, print_rows
from master.api.positions import PositionSet


def main() -> None:
    holes = PositionSet.from_ranges((k * 10**6, k * 10**6 + 7) for k in range(1, 1001))
    marks = PositionSet.span(0, 10**9) - holes
    data = marks.encode()
    both = median_seconds(lambda: PositionSet.decode(marks.encode()), number=100)
    batch = PositionSet.span(5 * 10**8, 5 * 10**8 + 64)
    front = PositionSet.span(0, 10**8) | PositionSet.span(10**8 + 64, 10**8 + 256)
    late = PositionSet.span(10**8, 10**8 + 64)
    print_rows(
        [
            Row(name="encode + decode, 1,000 ranges missing of 10^9", value=both * 1e3, unit="ms", goal="<= 1"),
            Row(name="encoded size, 1,000 ranges missing of 10^9", value=len(data) / 1024, unit="KiB", goal="<= 64"),
            Row(
                name="is a batch marked, of 1,000 ranges",
                value=median_seconds(lambda: batch & marks, number=1000) * 1e6,
                unit="us",
            ),
            Row(
                name="mark a batch, two ranges",
                value=median_seconds(lambda: front | late, number=1000) * 1e6,
                unit="us",
            ),
        ]
    )


if __name__ == "__main__":
    main()
