"""What an author may ask for: a schema, read by torch's own parser, and names that are free. The rest is refused."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import importlib.resources
import keyword
import re
import sys
from difflib import get_close_matches
from typing import Any

MAX_TENSORS, MAX_ARGUMENTS = 8, 16  # of src/elementwise/operator.h

_CPP_KEYWORDS = frozenset(
    """alignas alignof asm auto bool break case catch char class concept const consteval constexpr constinit
    continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept nullptr operator private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq""".split()  # noqa: SIM905
)
# What the generated files call by these names.
_USED = {
    "package": {
        "cases", "conftest", "elementwise", "lacking", "muladd_nb", "operators", "std", "test", "tests", "works",
    },
    "operator": {"C", "FORMS", "Operator", "Operators", "Tensor", "c", "forms", "operators", "ops", "public", "torch"},
    "argument": {"C", "Tensor", "errno", "out", "result", "torch"},
    "argument of a kernel": {
        "Any", "Elementwise", "Form", "T", "autocast", "batch_first", "contract", "derivative", "grad", "i",
        "in_dims", "info", "int64_t", "kOperator", "kernel", "needs", "run", "saved", "tangent", "tangents",
        "unsupported",
    },
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of an operator: a ``type`` of torch's schemas and a name."""

    type: str
    name: str

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.type == "Tensor"


@dataclasses.dataclass(frozen=True)
class Schema:
    """An operator that can be written: its name, its arguments without ``out``, and what comes of it."""

    name: str
    arguments: tuple[Argument, ...]
    results: int  # 0 of one that writes into `out`

    @property
    def declaration(self) -> str:
        """What C++ and Python declare an element-wise operator by."""
        name = self.name if self.results else self.name.removesuffix("_out")
        return f"{name}({', '.join(self._typed)})"

    @property
    def _typed(self) -> list[str]:
        return [f"{argument.type} {argument.name}" for argument in self.arguments]

    @property
    def text(self) -> str:
        """The schema itself."""
        if not self.results:
            return f"{self.name}({', '.join([*self._typed, 'Tensor(a!) out'])}) -> ()"
        results = "Tensor" if self.results == 1 else f"({', '.join(['Tensor'] * self.results)})"
        return f"{self.name}({', '.join(self._typed)}) -> {results}"

    @property
    def tensors(self) -> list[str]:
        """The names of its tensors."""
        return [argument.name for argument in self.arguments if argument.is_tensor]


def functor_name(operator: str) -> str:
    """Return what C++ calls the functor of an operator: ``RowNorm`` for ``row_norm``."""
    return "".join(map(str.capitalize, operator.split("_")))


def read(text: str, *, kernel: bool) -> Schema:
    """Read the schema of an operator, element-wise or with a kernel of its own.

    Raises
    ------
    ValueError
        If it is none that can be written, with the reason.
    """
    if not text.isascii():  # torch's parser cuts other letters into bytes
        raise ValueError(f"{text!r} is no schema: it must be of ASCII letters")
    try:
        parsed = _private().parse_schema(text)
    except RuntimeError as error:
        reason = "\n".join(line for line in str(error).splitlines() if line.strip())
        raise ValueError(
            f"{text!r} is no schema, as 'softclip(Tensor x, float limit) -> Tensor' is one; torch says:\n{reason}"
        ) from None

    def refuse(reason: str) -> ValueError:
        return ValueError(f"{text!r}: {reason}")

    if "::" in parsed.name:
        raise refuse("leave the namespace out; it is the name of the package")
    if parsed.overload_name:
        raise refuse("an overload has the public function of another operator; give it a name of its own")
    check_name("operator", parsed.name)
    if "..." in text:
        raise refuse("there must be each argument and each result, not ...")
    if any(result.alias_info is not None for result in parsed.returns):
        raise refuse("it returns a view, or what it writes to, which cannot be compiled; return new tensors, or ()")
    arguments, last = list(parsed.arguments), None
    writes = bool(arguments) and arguments[-1].alias_info is not None and arguments[-1].alias_info.is_write
    if writes:
        *arguments, last = arguments
    for argument in arguments:
        _check_argument(argument, refuse, kernel=kernel)
    names = [argument.name for argument in arguments]
    made = [functor_name(parsed.name)] + [f"{x}_tangent" for x in names]
    made += [f"{of}{i}" for i in range(len(parsed.returns)) for of in ("grad", "out")]
    for i, name in enumerate(names):
        if name in names[:i] or (kernel and name in made):
            raise refuse(f"{name} is the name of something else in it, too")
    tensors = sum(str(argument.type) == "Tensor" for argument in arguments)
    if not tensors:
        raise refuse("there must be a tensor among the arguments")
    if tensors > MAX_TENSORS or len(arguments) > MAX_ARGUMENTS:
        raise refuse(f"there may be {MAX_TENSORS} tensors, and {MAX_ARGUMENTS} arguments in all")
    _check_results(parsed, last, refuse, kernel=kernel)
    return Schema(parsed.name, tuple(Argument(str(x.type), x.name) for x in arguments), len(parsed.returns))


def _check_argument(argument: Any, refuse: Any, *, kernel: bool) -> None:
    name, type_ = argument.name, str(argument.type)
    if argument.alias_info is not None:
        what = "is written to" if argument.alias_info.is_write else "is aliased"
        raise refuse(f"{name} {what}; only a last argument, 'Tensor(a!) out', may be, and results are new tensors")
    if "List" in type_:
        raise refuse(f"{name} is a list; pass its elements one by one")
    if argument.real_type.kind().startswith("Sym"):
        raise refuse(f"{name} is symbolic; an int is a constant of a compiled program")
    allowed = ("Tensor", "float", "int", "bool") if kernel else ("Tensor", "float")
    if type_ not in allowed:
        advice = ", or use --kernel, which takes int and bool too" if type_ in ("int", "bool") else ""
        if near := get_close_matches(type_, allowed, 1):
            advice = f"; is it {near[0]}?"
        raise refuse(f"{name} must be one of {', '.join(allowed)}, got {type_}{advice}")
    if argument.has_default_value() or argument.kwarg_only:
        raise refuse(f"{name} must be positional and without a default; give it one in ops.py")
    check_name("argument", name)
    if kernel:
        check_name("argument of a kernel", name)


def _check_results(parsed: Any, out: Any, refuse: Any, *, kernel: bool) -> None:
    results = [str(result.type) for result in parsed.returns]
    if set(results) - {"Tensor"}:
        raise refuse(f"its results must be tensors, one by one, got {', '.join(results)}")
    if out is not None:
        if kernel or results or out.name != "out" or not parsed.name.endswith("_out"):
            raise refuse("an operator that writes looks like 'scale_out(Tensor x, Tensor(a!) out) -> ()', element-wise")
    elif not results:
        raise refuse("it must return a tensor, or write into a last argument, 'Tensor(a!) out'")
    elif parsed.name.endswith("_out"):
        raise refuse("the names of operators that write end in _out, and this one returns its result")


def check_name(what: str, name: str) -> None:
    """Raise ``ValueError`` if a package, an operator or an argument cannot have a name."""
    # It becomes a module, a project on PyPI and a dispatcher namespace, or a function in Python and in C++.
    if not re.fullmatch("[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
        raise ValueError(
            f"the name of the {what} must be a Python identifier of letters, digits and underscores that "
            f"begins with a letter, does not end in an underscore and is no keyword, got {name!r}"
        )
    if owner := _owner(what, name):
        raise ValueError(f"the name of the {what} must not be one that {owner} has already, got {name!r}")


def _private() -> Any:
    from .. import _torch_private as private

    if reason := private.lacking(private.NEW):
        raise ValueError(f"{reason}; use another torch, or a newer muladd_nb")
    return private


def _owner(what: str, name: str) -> str:
    if name in _CPP_KEYWORDS:
        return "C++"
    if name in _USED[what]:
        return "the project itself"
    if what in ("argument", "package") and name.isupper() and len(re.findall("[A-Z_]", name)) > 1:
        return "a macro of C++"
    if what == "package":
        if _normalized(name) in map(_normalized, sys.stdlib_module_names):
            return "Python"
        if name in _private().namespaces():
            return "torch.ops"
        if _normalized(name) in _needed():
            return "a package that it needs"
        if hasattr(ctypes.CDLL(None), name):
            return "a function of C"
    elif what == "operator" and name in _private().names_in_every_namespace():
        return "every namespace of torch.ops"
    return ""


def _normalized(name: str) -> str:
    """Return a name as PyPI compares it."""
    return re.sub("[-_.]+", "-", name).lower()


def _needed() -> set[str]:
    """Return the names of the projects that a project needs, from its build to its wheel, and those that they need."""
    found: set[str] = set()
    pyproject = (importlib.resources.files(__package__) / "project/pyproject.toml").read_text("utf-8")
    lists = re.findall(r"^(?:requires|dependencies|test|lint|wheel) = \[(.*)\]", pyproject, re.MULTILINE)
    rest = ["build", "pip", "triton", *re.findall(r'"([\w-]+)', " ".join(lists))]
    while rest:
        name = _normalized(rest.pop())
        if name in found:
            continue
        found.add(name)
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        rest += [re.split(r"[^\w.-]", requirement)[0] for requirement in requirements if "extra ==" not in requirement]
    return found
