"""Mistakes in the operators of ``tests/over_rows``: those that an author may make, and those that the layer may have."""

TABLE = [
    # A variance as a difference of two sums, which cancel if the mean is large.
    ("scaled_variance", "src/functors.h", "const C variance = row.sum([=](C x) { return (x - mean) * (x - mean); }, x) / row.size();", "const C variance = row.sum([](C x) { return x * x; }, x) / row.size() - mean * mean;"),
    # A softmax without its maximum.
    ("softmax_xentropy", "src/functors.h", "const C all = row.log_sum_exp(logits);\n    const C mean = row.sum(logits)", "const C all = elementwise::log(row.sum([](C x) { return elementwise::exp(x); }, logits));\n    const C mean = row.sum(logits)"),
    # A mask that is read in one reduction, and not in the other.
    ("masked_softmax", "src/functors.h", "return is_masked ? C(0) : elementwise::exp(x * scale - most);", "return is_masked && x > 1000 ? C(0) : elementwise::exp(x * scale - most);"),
    # A mask that is not read at all.
    ("masked_softmax", "src/functors.h", "const auto power = [=](C x, bool is_masked) { return is_masked ?", "const auto power = [=](C x, bool) { return x != x ?"),
    # A label that is out of range is taken for another one.
    ("softmax_xentropy", "src/functors.h", "* row.at(logits, label) -", "* row.at(logits, label < 0 || label >= row.size() ? 0 : label) -"),
    # A label that is ignored is read all the same.
    ("cross_entropy", "src/functors.h", "row.at(logits, is_ignored ? 0 : label) - most;", "row.at(logits, label) - most;"),
    # The layer: partial sums are combined wrongly, the tail of a row is forgotten, and a gradient omits a reduction.
    ("scaled_variance", "src/elementwise/cpu/row_loops.h", "lanes.set(k, join(lanes[k], lanes[half + k]));", "lanes.set(k, join(lanes[k], lanes[k]));"),
    ("scaled_variance", "src/elementwise/cpu/row_loops.h", "j < end; j++, k++) all.set(k, join(all[k], f(j)));", "j + 1 < end; j++, k++) all.set(k, join(all[k], f(j)));"),
    ("scaled_variance", "src/elementwise/cpu/row_loops.h", "for (int64_t bits = count++; bits & 1; bits >>= 1) all = join(levels[level++], all);", "for (int64_t bits = count++; bits & 1; bits >>= 1) all = levels[level++] + 0 * all;"),
    ("softmax", "src/elementwise/cpu/row_loops.h", "for (; j < end; j++) set(to + j, f(j));", "for (; j + 1 < end; j++) set(to + j, f(j));"),
    ("rms_norm", "src/elementwise/cpu/rows.h", "for (int64_t part = 0; part + width < parts; part += 2 * width)", "for (int64_t part = 0; part + 2 * width < parts; part += 2 * width)"),
    ("softmax_xentropy", "src/elementwise/rows/gradients.h", "known.gradient[1] = by_number<RowFunctor, Tensors>(known, 1);", "known.gradient[1] = B(0);"),
    # The layer: a softmax lacks its maximum, and its gradient the share of the sum.
    ("softmax", "src/elementwise/rows/row.h", "{ return exp(f(element...) - most); };", "{ return exp(f(element...) + 0 * (most == most)); };"),
    ("softmax", "src/elementwise/rows/gradients.h", "{ return grad(result, j) + g; }", "{ return grad(result, j) + 0 * g; }"),
    # The layer: a recorded call keeps another number than the one that a reduction gave.
    ("scaled_variance", "src/elementwise/rows/row.h", "if (noted_count < rows::kMostReduced) reduced[noted_count++] = static_cast<double>(math::primal(x));", "if (noted_count < rows::kMostReduced) reduced[noted_count++] = 0;"),
    # The layer: the gradient of a broadcast row is not added to that of the rows before.
    ("rms_norm", "src/elementwise/cpu/row_loops.h", "sums = sums + numbers;", "sums = numbers;"),
]  # fmt: skip
