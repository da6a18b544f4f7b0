"""Private names of torch stand in one module, and one that a torch drops is named."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401 (the modules below are looked up in it)

PACKAGE = Path(__file__).parent.parent / "muladd_nb"
HOME = "_torch_private.py"
DOCUMENTED = {"torch._check"}  # an underscore, but a page of its own in PyTorch's documentation


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


def resolve(name):
    """Import as much of `a.b.c` as is a module, and look up the rest."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


PRIVATE = sorted(name for name in names_of_torch(PACKAGE / HOME) if private(name))


MODULES = [path for path in PACKAGE.rglob("*.py") if path.name != HOME and "project" not in path.parts]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_other_modules_use_public_names_only(path):
    assert not {name for name in names_of_torch(path) if private(name)} - DOCUMENTED


def test_the_module_is_read_rightly():
    assert {
        "torch._C._after_autograd_keyset",
        "torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter",
        "torch.autograd.forward_ad._current_level",
    } <= set(PRIVATE)


@pytest.mark.parametrize("name", PRIVATE)
def test_this_torch_has(name):
    resolve(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch._C._after_autograd_keyset",
        "torch._functorch.autograd_function.custom_function_call_vmap_helper",
        "torch.nested._internal.nested_tensor.NestedTensor",
    ],
)
def test_a_missing_name_is_named(name):
    module, _, attribute = name.rpartition(".")
    code = f"import {module}; del {name}; import muladd_nb"
    run = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert attribute in run.stderr.strip().splitlines()[-1]
