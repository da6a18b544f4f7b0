"""One table has all private names of torch. If torch lacks one, only the features that need it are lost."""

import ast
from pathlib import Path

import pytest
from forked import python

import muladd_nb
from muladd_nb._layer import torch_private
from muladd_nb._layer.torch_private import names

PACKAGE = Path(__file__).parent.parent / "muladd_nb"
HOME = "torch_private.py"
DOCUMENTED = {"torch._check"}  # has an underscore, but also a page in PyTorch's documentation


def private(name):
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def dotted(node):
    """Return `a.b.c` for the expression a.b.c, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (value := dotted(node.value)):
        return f"{value}.{node.attr}"
    return None


def names_of_torch(path):
    """Return the full names that a module takes from torch, private or not."""
    tree = ast.parse(path.read_text())
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name: alias.name for alias in node.names if alias.name.split(".")[0] == "torch"}
    used = set(imported.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            root, _, rest = name.partition(".")
            if root in imported:
                used.add(f"{imported[root]}.{rest}")
    return used


def private_attributes(path):
    """Return the private attributes that a module takes from anything but `self`."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if private(node.attr) and getattr(node.value, "id", "") != "self"}


MODULES = [path for path in PACKAGE.rglob("*.py") if not {"copied", "project"} & set(path.parts)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_use_public_names_only(path):
    assert not {name for name in names_of_torch(path) if private(name)} - DOCUMENTED
    assert private_attributes(path) <= ({"_current_level", "_is_profiler_enabled"} if path.name == HOME else {"_check"})


def test_functions_of_torch_in_cpp_are_called_on_no_torch_that_the_tests_did_not_run_on(monkeypatch):
    symbol, needed_for = "_ZN2at12hasCallbacksEv", torch_private.CALLS
    assert bool(torch_private._address(symbol, needed_for)) == torch_private._asks_cpp
    monkeypatch.setattr(torch_private, "_asks_cpp", False)
    assert torch_private._address(symbol, needed_for) == 0


def test_this_torch_lacks_nothing():
    assert muladd_nb.build_info()["missing_in_torch"] == []


# torch._C is left out, because without it there is no torch.
MODULES_OF_TORCH = sorted({module for path in names if private(module := path.partition(":")[0])} - {"torch._C"})
IN_CPP = [path for path in names if path.startswith("libtorch:")]  # empty on a torch newer than those tested
QUICK = [
    *IN_CPP,
    "torch._C:_are_functorch_transforms_active",
    "torch._C:_dispatch_key_parse",
    "torch._C:_dispatch_keys",
    "torch._C:_len_torch_dispatch_stack",
    "torch.autograd.forward_ad:_current_level",
    "torch.autograd.forward_ad:_set_fwd_grad_enabled",
    *(module for module in MODULES_OF_TORCH if "functorch" in module or "nested" in module),
]


def without(path, tmp_path, *, slow):
    status, stderr = python(f"import works; works.check({path!r}, slow={slow})", tmp_path / "stderr")
    assert status == 0, stderr


@pytest.mark.parametrize("path", QUICK)
def test_a_torch_that_lacks_something_loses_only_what_needs_it(path, tmp_path):
    without(path, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*names, *MODULES_OF_TORCH])
def test_a_torch_that_lacks_any_of_the_table_loses_only_what_needs_it(path, tmp_path):
    """``torch.compile`` still works, too."""
    without(path, tmp_path, slow=True)
