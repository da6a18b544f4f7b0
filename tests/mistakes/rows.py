"""Mistakes in the operators of ``tests/over_rows``: those that an author may make, and those that the layer may have."""

OPERATORS = ["softmax", "softmax_xentropy", "masked_softmax", "scaled_variance"]

TABLE = [
    # A sum of squares, of which a large mean leaves nothing.
    ("scaled_variance", "src/functors.h", "const C variance = row.sum([=](C x) { return (x - mean) * (x - mean); }, x) / row.size();", "const C variance = row.sum([](C x) { return x * x; }, x) / row.size() - mean * mean;"),
    # A softmax without its maximum.
    ("softmax", "src/functors.h", "const auto power = row.keep([=](C x) { return elementwise::exp(x - most); }, x);", "const auto power = row.keep([=](C x) { return elementwise::exp(x - 0 * most); }, x);"),
    # A mask that is read in one reduction, and not in the other.
    ("masked_softmax", "src/functors.h", "return is_masked ? C(0) : elementwise::exp(x * scale - most);", "return is_masked && x > 1000 ? C(0) : elementwise::exp(x * scale - most);"),
    # A label that is out of range is taken for another one.
    ("softmax_xentropy", "src/functors.h", "row.at(logits, label)", "row.at(logits, label < 0 || label >= row.size() ? 0 : label)"),
    # The layer: partial sums are combined wrongly, the tail of a row is forgotten, and a gradient omits a reduction.
    ("scaled_variance", "src/elementwise/cpu/row_loops.h", "lanes.set(k, join(lanes[k], lanes[half + k]));", "lanes.set(k, join(lanes[k], lanes[k]));"),
    ("scaled_variance", "src/elementwise/cpu/row_loops.h", "j < end; j++, k++) all.set(k, join(all[k], f(j)));", "j + 1 < end; j++, k++) all.set(k, join(all[k], f(j)));"),
    ("softmax_xentropy", "src/elementwise/rows/gradients.h", "known.gradient[k] = by_number<Bound, Tensors>(known, k);", "known.gradient[k] = k == 1 ? B(0) : by_number<Bound, Tensors>(known, k);"),
]  # fmt: skip
