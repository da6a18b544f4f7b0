"""Private names of torch stand in one table, and a torch that lacks one loses only what needs it."""

import ast
import re
from pathlib import Path

import pytest

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


MODULES = [path for path in PACKAGE.rglob("*.py") if "project" not in path.parts]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_use_public_names_only(path):
    assert not {name for name in names_of_torch(path) if private(name)} - DOCUMENTED


# What the table looks up, as it is written there.
PATHS = re.findall(r'"(torch[\w.]*:[\w.]+)"', (PACKAGE / HOME).read_text())


def test_the_table_is_read_rightly():
    assert {
        "torch._C:_after_autograd_keyset",
        "torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter",
        "torch.autograd.forward_ad:_current_level",
    } <= set(PATHS)


def test_this_torch_lacks_nothing():
    import muladd_nb

    assert muladd_nb.build_info()["missing_in_torch"] == []
