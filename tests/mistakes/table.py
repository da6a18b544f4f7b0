"""Mistakes that an author may make: the operator, the file, the right text, and the wrong text."""

TABLE = [
    # The tests of a project once did not notice the first nine.
    # The gradient of x is wrong if the other tensor needs none.
    ("rms_norm", "python/my_ops/_rms_norm.py", "    if needs[0]:\n", "    if needs[0] and not needs[1]:\n        of_x = factor * grad\n    elif needs[0]:\n"),
    # The derivative is wrong if a bool differs from that of the first call.
    ("running_sum", "python/my_ops/_running_sum.py", "OP(grad, dim, not reverse)", "OP(grad, dim, False)"),
    # The derivative is wrong if an int differs from that of the first call.
    ("running_sum", "python/my_ops/_running_sum.py", "OP(grad, dim, not", "OP(grad, 0, not"),
    # The batching rule does not count the batch dimension.
    ("running_sum", "python/my_ops/_running_sum.py", "dim + 1 if dim >= 0 else dim", "dim"),
    # C++ counts a dimension from the wrong end.
    ("running_sum", "src/running_sum.cpp", "if (dim < 0) dim += dims;", "dim = dim < 0 ? dim + dims : dims - 1 - dim;"),
    # The last of many rows is missing.
    ("row_logsumexp", "src/row_logsumexp.cpp", "out.numel(), kernel", "out.numel() - (out.numel() > 100), kernel"),
    # A CUDA kernel stops after its first step.
    ("row_logsumexp", "src/row_logsumexp.cu", "i < n; i += step)", "i < n; i += n)"),
    # Every block repeats the first block's work.
    ("rms_norm", "src/rms_norm.cu", "int64_t{blockIdx.x} * blockDim.x + threadIdx.x", "threadIdx.x"),
    # stylegan3's activation: its derivative does not know that it clamps.
    ("bias_act", "python/my_ops/_operators.py", "one * slope) * inside", "one * slope)"),
    # A wrong derivative, and a formula with another argument that has the same value in the first call.
    ("softclip", "python/my_ops/_operators.py", 'limit)": Elementwise()', 'limit)": Elementwise(derivative={"save": lambda needs, inputs, results: inputs[:2], "vjp": lambda needs, saved, grad: (grad / (1 + saved[0].abs() / saved[1]), None), "jvp": lambda saved, tangent, _: tangent / (1 + saved[0].abs() / saved[1])})'),
    ("blend", "python/my_ops/_operators.py", "formula=lambda x, y, z, p, q: p", "formula=lambda x, y, z, p, q: q"),
    # The two modes differ.
    ("row_logsumexp", "python/my_ops/_row_logsumexp.py", "(x_tangent * _softmax(*saved)).sum(1)", "x_tangent.sum(1)"),
    # The fake result has other strides, another shape, or another dtype.
    ("running_sum", "python/my_ops/_running_sum.py", "return x.new_empty(x.shape)", "return torch.empty_like(x)"),
    ("gather_rows", "python/my_ops/_gather_rows.py", "x.new_empty((*index.shape, x.shape[-1]))", "x.new_empty(x.shape)"),
    ("scatter_rows", "python/my_ops/_scatter_rows.py", "src.new_empty(shape, dtype=torch.int64)", "src.new_empty(shape)"),
    # The kernel treats every tensor as contiguous.
    ("running_sum", "src/running_sum.cpp", "  x = elementwise::contiguous(x);\n", ""),
    # It checks only one of its tensors.
    ("rms_norm", "src/rms_norm.cpp", '  elementwise::check_beside(kOperator, {"x", x}, {"weight", weight}, elementwise::FloatingPoint{});\n', ""),
    # It sums in a 16-bit dtype.
    ("rms_norm", "src/rms_norm.h", "squares += static_cast<C>(row[j]) * static_cast<C>(row[j]);", "squares = static_cast<C>(static_cast<T>(squares + static_cast<C>(row[j]) * static_cast<C>(row[j])));"),
    # At a bound, the other branch is taken.
    ("bias_act", "python/my_ops/_operators.py", "y.abs() <= clamp", "y.abs() < clamp"),
    # Infinities.
    ("row_logsumexp", "src/row_logsumexp.h", "std::isfinite(largest) ? largest : 0", "largest"),
    # An index selects a row twice.
    ("scatter_rows", "src/scatter_rows.h", "sums[row_of[k] * columns + j] += static_cast<C>(from[j]);", "sums[row_of[k] * columns + j] = static_cast<C>(from[j]);"),
    # Masked elements have a gradient.
    ("gather_rows", "python/my_ops/_gather_rows.py", "scatter_rows(grad, index, rows, keep)[0]", "scatter_rows(grad, index, rows)[0]"),
    # A workspace has the 16-bit dtype, too.
    ("scatter_rows", "src/scatter_rows.h", "sums[row_of[k] * columns + j] += static_cast<C>(from[j]);", "sums[row_of[k] * columns + j] = static_cast<C>(static_cast<T>(sums[row_of[k] * columns + j] + static_cast<C>(from[j])));"),
    # A sum is computed in the 16-bit dtype of an autocast region.
    ("scatter_rows", "python/my_ops/_scatter_rows.py", 'autocast="float32"', 'autocast="cast"'),
    # The derivative is float32 for every dtype.
    ("rms_norm", "python/my_ops/_rms_norm.py", "torch.promote_types(x.dtype, torch.float32)", "torch.float32"),
    # The derivative is a constant.
    ("row_logsumexp", "python/my_ops/_row_logsumexp.py", "(grad[:, None] * _softmax(*saved),)", "(grad[:, None] * _softmax(*saved).detach(),)"),
    # The batches of two tensors are mixed up.
    ("gather_rows", "src/gather_rows.h", "x + (i / places * rows + index[i]) * columns", "x + index[i] * columns"),
    # Exponentials overflow, though the result does not.
    ("row_logsumexp", "src/row_logsumexp.h", "std::isfinite(largest) ? largest : 0", "0 * largest"),
    # An index is not checked before it is used.
    ("gather_rows", "src/gather_rows.cpp", '  elementwise::check_index(kOperator, "index", index, x.size(-2), keep);\n', ""),
    # The fake kernel takes shapes that the kernel refuses.
    ("scatter_rows", "python/my_ops/_scatter_rows.py", "torch._check(size == other, sentence)\n    shape", "pass\n    shape"),
    # NaN becomes a bound. This and the next come last, because all functors are compiled again.
    ("bias_act", "src/functors.h", "return y < -clamp ? -clamp : y > clamp ? clamp : y;", "return y > clamp ? clamp : y >= -clamp ? y : -clamp;"),
    # A functor ignores that a number may be negative.
    ("softclip", "src/functors.h", "elementwise::abs(x) / limit", "x / limit"),
]  # fmt: skip
