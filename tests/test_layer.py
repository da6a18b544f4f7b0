"""What CONTRIBUTING says of adding an operator is all that there is to do: some are added in a copy of the tree."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_codebase import ROOT, sources

HERE = Path(__file__).parent

# What each step of CONTRIBUTING's "Adding an operator" adds, before which line of which file.
STEPS = [
    (
        "src/functors.h",
        "} // namespace muladd_nb",
        """\
struct Sum8 {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b, C c, C d, C e, C f, C g, C h) const {
    return std::exp(a) + b + c + d + e + f + g + h;
  }
};

struct Blend {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C alpha, C y, C w, C beta) const {
    return alpha * x + beta * y * w;
  }
};

struct Bent {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x) const {
    return x / (1 + std::abs(x));
  }
};

struct Popcount {
  using dtypes = elementwise::List<uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x) const {
    int n = 0;
    for (uint64_t bits = x, i = 0; i < 8 * sizeof(C); i++) n += bits >> i & 1;
    return n;
  }
};

""",
    ),
    (
        "src/operators.h",
        "    Operator<",
        """\
    Operator<"blend(Tensor x, float alpha, Tensor y, Tensor w, float beta)", Blend, functional | writing | out>,
    Operator<"bent(Tensor x)", Bent, functional | writing | out>,
    Operator<"popcount(Tensor x)", Popcount, functional>,
    Operator<"sum8(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h)", Sum8, functional>,
""",
    ),
    (
        "muladd_nb/_operators.py",
        "}\n\nFORMS",
        """\
    "blend(Tensor x, float alpha, Tensor y, Tensor w, float beta)": Elementwise(
        partials={"x": lambda alpha: alpha, "y": lambda w, beta: beta * w, "w": lambda y, beta: beta * y}, flops=4
    ),
    "bent(Tensor x)": Elementwise(partials={"x": lambda x: (1 + x.abs()) ** -2}, flops=3, autocast="float32"),
    "popcount(Tensor x)": Elementwise(),
    "sum8(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h)": Elementwise(
        partials={"a": lambda a: a.exp()} | {x: lambda: 1 for x in "bcdefg"}, autocast="leave"
    ),
""",
    ),
]


# Where this package is installed in editable mode, its finder would come before PYTHONPATH.
PYTEST = """
import sys, pytest
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "MesonpyMetaFinder"]
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.whole
def test_an_operator_is_a_functor_a_row_and_an_entry(tmp_path):
    tree, package = tmp_path / "tree", tmp_path / "package"
    for source in sources():
        copy = tree / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for path, before, added in STEPS:
        text = (tree / path).read_text()
        assert before in text
        (tree / path).write_text(text.replace(before, added + before, 1))
    options = ["--config-settings=setup-args=-Dcuda=disabled", "--config-settings=setup-args=-Dwerror=true"]
    run(
        sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", *options, "--target", package, tree
    )
    tests = HERE / "layer/added_operators.py"
    paths = os.pathsep.join([str(package), str(HERE)])
    run(sys.executable, "-c", PYTEST, "-q", "-p", "no:cacheprovider", tests, PYTHONPATH=paths, cwd=tmp_path)


def run(*command, cwd=None, **environment):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
