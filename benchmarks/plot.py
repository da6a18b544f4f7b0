"""Draw results/throughput-*.json: how many times faster than each alternative, by size and dtype."""

from __future__ import annotations

import json
import math

import matplotlib as mpl
import matplotlib.pyplot as plt
from harness import HERE

mpl.use("agg")

for path in sorted((HERE / "results").glob("throughput-*.json")):
    report = json.loads(path.read_text())
    dtypes = list(dict.fromkeys(row["dtype"] for row in report["rows"]))
    figure, axes = plt.subplots(
        2, len(dtypes), figsize=(3.2 * len(dtypes), 6), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for column, dtype in enumerate(dtypes):
        for line, result in enumerate(("fresh", "out=")):
            axis = axes[line][column]
            rows = [row for row in report["rows"] if row["dtype"] == dtype and row["result"] == result]
            mine = next(iter(rows[0]["seconds"]))
            for side in list(rows[0]["seconds"])[1:]:
                ratios = [row["seconds"][side] / row["seconds"][mine] for row in rows]
                axis.plot([math.log2(row["numel"]) for row in rows], ratios, "o-", markersize=3, label=side)
            axis.axhline(1, color="gray", linewidth=0.8)
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter("{x:g}x")
            axis.set_title(f"{dtype}, {'a fresh result' if result == 'fresh' else result}")
            axis.legend(fontsize=7)
            if line:
                axis.set_xlabel("log2 of the elements")
        axes[0][0].set_ylabel("times faster than")
        axes[1][0].set_ylabel("times faster than")
    machine = report["machine"]
    figure.suptitle(f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}")
    figure.savefig(path.with_suffix(".png"), dpi=110)
    print(f"written to {path.with_suffix('.png')}")
