"""Record which names libtorch's stable ABI has, and since when, in ``muladd_nb/_port/names.csv``.

``tools/stable_names.py 2.10.0=DIR 2.11.0=DIR ...`` reads the headers of each torch, where DIR is its folder
``torch/include``. torch's smallest wheels are those for macOS:
``pip download --no-deps --platform macosx_14_0_arm64 torch==2.14.1``.

A name has two versions. ``runs`` is the oldest target for which a library can use the name, from the conditions on
``TORCH_FEATURE_VERSION`` around it. ``builds`` is the oldest torch whose headers have the name.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import tree_sitter
import tree_sitter_cpp

FIELDS = ["kind", "name", "header", "runs", "builds"]
TABLE = Path(__file__).resolve().parents[1] / "muladd_nb/_port/names.csv"
FOLDERS = ["torch/csrc/stable", "torch/headeronly", "torch/csrc/inductor/aoti_torch/c"]
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
PRIVATE = re.compile(
    r"[<\s]|\bdetail\b|\bimpl\b|\bguts\b|^THO_AP|^_|::_|(\w+)::\1$|::float$|[a-z]_$(?<!fill_)(?<!zero_)(?<!copy_)"
)
# Names in no namespace. Others are the parser's mistakes, such as `float` of a conversion, or CUDA's own atomicAdd.
GLOBAL = re.compile(r"aoti_|torch_|gpuAtomic|[A-Z]\w+(Handle|Opaque|Error|IValue)$")
FIRST = "2.10"  # the oldest torch that muladd_nb supports; it has all names of older ones

Key = tuple[str, str]


def main() -> None:
    """Read the given torch headers, oldest first, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", nargs="+", metavar="VERSION=DIR")
    rows: dict[Key, dict[str, str]] = {}
    for version, folder in (word.split("=", 1) for word in parser.parse_args().torch):
        short = ".".join(version.split(".")[:2])
        for (kind, name), (header, runs) in names(Path(folder)).items():
            row = {"kind": kind, "name": name, "header": header, "runs": runs, "builds": short}
            rows.setdefault((kind, name), row)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))
    print(f"{TABLE}: {len(rows)} names")


def names(include: Path) -> dict[Key, tuple[str, str]]:
    """Return the header and the gate of each name in a folder of headers, by kind and name."""
    found: dict[Key, tuple[str, str]] = {}
    for folder in FOLDERS:
        for path in sorted((include / folder).rglob("*.h")):
            header = path.relative_to(include).as_posix()
            if "shim_" in path.name and folder.endswith("aoti_torch/c"):
                continue  # generated, without promises: operators that Inductor calls
            found["header", header] = (header, FIRST)
            public = re.sub(r"_(struct|inl)\.h$", ".h", header)  # tensor.h includes tensor_struct.h and tensor_inl.h
            for kind, name, runs in _declared(path.read_bytes()):
                key = (kind, name)
                if PRIVATE.search(name) or (kind == "name" and "::" not in name and not GLOBAL.match(name)):
                    continue
                if key not in found or _number(runs) < _number(found[key][1]):
                    found[key] = (public, runs)
    functions = re.findall(r"#include <ATen/ops/(\w+)\.h>", (include / "ATen/Functions.h").read_text())
    methods = re.findall(
        r"^  \S.*?(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\) const;", (include / "ATen/core/TensorBody.h").read_text(), re.M
    )
    found.update({("aten", name): ("", "") for name in (*functions, *methods)})
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if version else (0,)


def _declared(source: bytes) -> Iterator[tuple[str, str, str]]:
    # Expand the macros that open and close namespaces, each on its own line.
    text = re.sub(
        rb"HIDDEN_NAMESPACE_BEGIN\(([\w, ]+)\)", lambda m: b"namespace " + m[1].replace(b", ", b"::") + b" {", source
    )
    text = re.sub(rb"HIDDEN_NAMESPACE_END\([\w, ]+\)", b"}", text)
    text = re.sub(
        rb"(?<!define )\b(AOTI_TORCH_EXPORT|C10_HOST_DEVICE|C10_API|C10_NOINLINE|alignas\(\d+\))\s", b"", text
    )
    yield from _walk(PARSER.parse(text).root_node, (), FIRST)


def _walk(node: tree_sitter.Node, scope: tuple[str, ...], runs: str) -> Iterator[tuple[str, str, str]]:
    for child in node.named_children:
        kind, inner, gate = child.type, scope, runs
        name = child.child_by_field_name("name")
        if kind in ("preproc_def", "preproc_function_def"):
            if name and not re.match(rb"_|DEFINE_|SPECIALIZE_", name.text or b""):
                yield "macro", _text(name), runs
            continue
        if kind == "preproc_if":
            condition = child.child_by_field_name("condition")
            if condition and (found := re.search(r"FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)", _text(condition))):
                gate = max(runs, f"{found[1]}.{found[2]}", key=_number)
            elif condition and "FEATURE_VERSION <" in _text(condition):
                continue  # newer versions replace this
        elif kind == "namespace_definition":
            inner = (*scope, *(_text(name).split("::") if name else ()))
        elif kind in ("class_specifier", "struct_specifier", "enum_specifier", "alias_declaration") and name:
            yield "name", "::".join((*scope, _text(name))), runs
            inner = (*scope, _text(name))
        elif kind == "using_declaration" and "namespace" not in _text(child):
            used = _text(child).removeprefix("using").strip(" ;")
            yield "name", "::".join((*scope, used.split("::")[-1])), runs
            if used.startswith("c10::"):  # between #if and #else the parser loses some namespaces
                yield "name", used, runs
        elif kind in ("function_definition", "declaration", "field_declaration", "type_definition"):
            for declared in _declarators(child):
                yield "name", "::".join((*scope, declared)), runs
            if kind == "function_definition":
                continue  # skip its body
        if child.type in ("compound_statement", "template_parameter_list", "parameter_list"):
            continue
        yield from _walk(child, inner, gate)


def _declarators(node: tree_sitter.Node) -> Iterator[str]:
    for child in node.children_by_field_name("declarator"):
        while inner := child.child_by_field_name("declarator"):
            child = inner
        if child.type in ("reference_declarator", "init_declarator"):
            child = child.named_children[-1]
            while inner := child.child_by_field_name("declarator"):
                child = inner
        if child.type in ("identifier", "field_identifier", "type_identifier"):
            yield _text(child)


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode()


if __name__ == "__main__":
    main()
