"""Retrieval quality on real data, by the paper's protocol: leave one out within the test rows, ties averaged.

    python benchmarks/retrieval.py cifar10             # GIST, 16 bits, 1,000 k-means inducing inputs
    python benchmarks/retrieval.py mnist --bits 16 32
    python benchmarks/retrieval.py digits --seeds 3

Data are looked for in --data-dir, else in the folder that GPHASH_DATA names, else in the user's cache folder, and
downloaded there if missing. If --reports names a folder, every run is kept there as a JSON report, and the reports of
the folder are drawn.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from gphash import GPHasher
from gphash.datasets import described, progress, registry
from gphash.evaluation import protocol, report
from gphash.evaluation.protocol import Rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=[name for name in registry.NAMES if name != "image_folder"], help="data set")
    parser.add_argument("--bits", type=int, nargs="+", default=[16], help="lengths of codes (default 16)")
    parser.add_argument("--inducing", type=int, default=1000, help="inducing inputs (default 1,000)")
    parser.add_argument("--choice", choices=["kmeans", "random"], default="kmeans", help="how to find them (kmeans)")
    parser.add_argument("--rows", type=int, default=None, help="use only so many training rows")
    parser.add_argument("--seeds", type=int, default=1, help="runs with seeds 0, 1, … (default 1)")
    parser.add_argument("--data-dir", type=Path, default=None, help="folder of the data")
    parser.add_argument("--reports", type=Path, default=None, help="folder for JSON reports and their figures")
    args = parser.parse_args()
    unit = "files" if args.data == "nuswide" else "bytes"
    dataset = registry.load(args.data, args.data_dir, progress=progress.bar(sys.stderr, args.data, unit))
    dataset = described.by_gist(dataset)
    some = np.random.default_rng(0).permutation(len(dataset.train.y))[: args.rows] if args.rows else slice(None)
    train = Rows(dataset.train.X[some], dataset.train.y[some])
    test = Rows(dataset.test.X, dataset.test.y)
    data = {"name": dataset.name, "features": dataset.features, "checksum": dataset.checksum}
    print(
        f"{dataset.name}, {dataset.features}: {len(train.y):,} training rows, {len(test.y):,} test rows, leave one out"
    )
    for n_bits in args.bits:
        reports = []
        for seed in range(args.seeds):
            one = protocol.run(
                lambda seed, n_bits=n_bits: GPHasher(
                    n_bits, n_inducing=args.inducing, inducing=args.choice, random_state=seed
                ),
                train,
                test,
                data,
                seed=seed,
            )
            reports.append(one)
            if args.reports:
                args.reports.mkdir(parents=True, exist_ok=True)
                report.write(args.reports / f"{args.data}-{n_bits}-{seed}.json", one)
        found = protocol.summarise(reports)
        seconds = np.mean([one["method"]["training_seconds"] for one in reports])

        def figure(name: str, found: dict = found) -> str:
            return f"{found[name]['mean']:.4f}" + (f" ± {found[name]['spread']:.4f}" if args.seeds > 1 else "")

        print(f"{n_bits} bits, {args.inducing} inducing inputs ({args.choice}), {args.seeds} seed(s), {seconds:.1f} s")
        print(f"  mAP by Hamming distance           {figure('hamming.map')}")
        print(f"  precision within radius 2         {figure('hamming.precision_within_radius')}")
        print(f"  mAP by expected Hamming distance  {figure('expected.map')}")
        if "calibration.calibration_error" in found:
            print(f"  expected calibration error        {figure('calibration.calibration_error')}")
        print(f"  distinct codes                    {found['codes.distinct_codes']['mean']:,.0f}", flush=True)
    if args.reports:
        draw(args.reports)


def draw(folder: Path) -> None:
    """Draw all reports of a folder."""
    from gphash.evaluation import canvas, plots

    reports = [report.read(path) for path in sorted(folder.glob("*.json"))]
    figures = {
        "precision-recall": plots.precision_recall(reports),
        "map-against-bits": plots.map_against_bits(reports),
        "calibration": plots.calibration(reports[-1]) if "calibration" in reports[-1]["results"] else None,
        "training": plots.training_trace(reports[-1]),
        "codes": plots.codes(reports[-1]),
    }
    for name, figure in figures.items():
        if figure is not None:
            print("wrote", *canvas.save(figure, folder / name))


if __name__ == "__main__":
    main()
