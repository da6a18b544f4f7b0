"""What an author may ask for: a schema, read by torch's own parser, and names that are free. The rest is refused."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import re
import string
import sys
from difflib import get_close_matches
from typing import Any

MAX_TENSORS, MAX_OPTIONAL, MAX_ARGUMENTS = 8, 3, 16  # of src/elementwise/operator.h, where derivatives have one more

CPP_KEYWORDS = frozenset(
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
        "cases", "conftest", "elementwise", "muladd_nb", "operators", "std", "test", "tests",
    },
    "operator": {
        "C", "FORMS", "Operator", "Operators", "T", "Tensor", "c", "dtensor", "executorch", "flops", "forms", "layer",
        "operators", "ops", "public", "t", "torch",
    },
    "argument": {"C", "Tensor", "errno", "is_number", "out", "result", "torch"},
}  # fmt: skip
_REDUCES = {"dim": "int", "keepdim": "bool"}  # of an operator over rows: which dimension, and whether it stays
REQUIRED = inspect.Parameter.empty  # the default of an argument that has none
_IN_PYTHON = {
    "ScalarType": "torch.dtype",
    "Device": "torch.device",
    "Layout": "torch.layout",
    "MemoryFormat": "torch.memory_format",
}


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of an operator: a ``type`` of torch's schemas and a name."""

    type: str
    name: str
    is_written: bool = False
    is_keyword: bool = False
    default: Any = REQUIRED

    @property
    def base(self) -> str:
        """Its type without what says that it is optional, or a list."""
        return self.type.rstrip("?[]")

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, an optional one, or a list of them."""
        return self.base == "Tensor"

    @property
    def annotation(self) -> str:
        """Its type in Python."""
        text = _IN_PYTHON.get(self.base, self.base)
        for suffix in re.findall(r"\?|\[\]", self.type):
            text = f"list[{text}]" if suffix == "[]" else f"{text} | None"
        return text


@dataclasses.dataclass(frozen=True)
class Schema:
    """An operator that can be written: its name, its arguments without ``out``, and what comes of it."""

    name: str
    arguments: tuple[Argument, ...]
    results: int  # 0 of one that writes into `out`, or returns nothing
    text: str  # the schema, as the author has it
    is_over_rows: bool = False

    @property
    def declaration(self) -> str:
        """What C++ and Python declare an element-wise operator by."""
        typed: list[str] = []
        letters = iter(string.ascii_lowercase)
        for x in self.arguments:
            typed += ["*"] * (x.is_keyword and "*" not in typed)
            mark = f"({next(letters)}!)" if x.is_written else ""
            typed.append(f"{x.type}{mark} {x.name}" + (f"={x.default}" if x.default is not REQUIRED else ""))
        return f"{self.operator}({', '.join(typed)})"

    @property
    def operator(self) -> str:
        """The name in that."""
        return self.name if self.results or self.written else self.name.removesuffix("_out")

    @property
    def written(self) -> list[Argument]:
        """The tensors that it writes to, without an ``out``."""
        return [x for x in self.arguments if x.is_written]

    @property
    def read(self) -> list[Argument]:
        """The tensors that it only reads."""
        return [x for x in self.arguments if x.is_tensor and not x.is_written]

    @property
    def factors(self) -> list[Argument]:
        """What a new kernel multiplies: these, and the numbers that are no lists."""
        numbers = ("float", "int", "bool", "float?", "int?", "bool?")
        return [x for x in self.arguments if x.type in numbers or x in self.read]

    @property
    def reduces(self) -> list[str]:
        """The arguments of an operator over rows that say what is reduced."""
        return [x.name for x in self.arguments if self.is_over_rows and x.name in _REDUCES]

    @property
    def is_of_row(self) -> bool:
        """Whether the results of an operator over rows have one value for each row."""
        return "keepdim" in self.reduces and self.results > 0

    @property
    def first(self) -> Argument:
        """The tensor that is always there, or the list of which there must be one."""
        return next(x for type_ in ("Tensor", "Tensor[]") for x in self.arguments if x.type == type_)

    @property
    def returns(self) -> str:
        """The type of what is returned, in Python."""
        return {0: "None", 1: "Tensor"}.get(self.results, f"tuple[{', '.join(['Tensor'] * self.results)}]")

    @property
    def stem(self) -> str:
        """What its files and the loops in them are called, which C++ does not want to begin or end in an underscore."""
        return self.name.strip("_")


def functor_name(operator: str) -> str:
    """Return what C++ calls the functor of an operator: ``RowNorm`` for ``row_norm``."""
    return "".join(map(str.capitalize, operator.split("_")))


def read(text: str, *, kernel: bool, rows: bool = False) -> Schema:
    """Read the schema of an operator; raise ``ValueError`` with the reason if none can be written for it."""
    if not text.isascii():  # torch's parser cuts other letters into bytes
        raise ValueError(f"{text!r} is no schema: it must be of ASCII letters")
    from . import _torch_names

    try:
        parsed = _torch_names.parse_schema(text)
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
    check_name("operator", parsed.name, underscores=kernel or not parsed.name.startswith("_"))  # as `adam_` ends
    if "..." in text:
        raise refuse("there must be each argument and each result, not ...")
    if any(result.alias_info is not None for result in parsed.returns):
        raise refuse("it returns a view, or what it writes to, which does not compile right; return new tensors, or ()")
    names = [x.name for x in parsed.arguments]
    for x in parsed.arguments:
        if names.count(x.name) > 1:
            raise refuse(f"{x.name} is the name of something else in it, too")
        if x.alias_info is not None and not x.alias_info.is_write:
            raise refuse(f"{x.name} is aliased; results are new tensors")
    updates = any(x.alias_info for x in parsed.arguments)
    if parsed.name.endswith("_") and not updates:  # it would return a DTensor as it is
        raise refuse("its name ends in _, by which torch knows what updates its arguments; choose another name")
    text = " ".join(text.split())
    if kernel:
        return _read_kernel(parsed, text, refuse)
    arguments = list(parsed.arguments)
    written = [x.name for x in arguments if x.alias_info is not None and x.alias_info.is_write]
    writes_out = written == ["out"] and arguments[-1].name == "out" and parsed.name.endswith("_out")
    if writes_out:
        arguments.pop()
    for argument in arguments:
        _check_argument(argument, refuse, writes_out=writes_out, updates=bool(written) and not writes_out)
    optional = sum(str(argument.type) == "Optional[Tensor]" for argument in arguments)
    tensors = optional + sum(str(argument.type) == "Tensor" for argument in arguments)
    if tensors == optional:
        raise refuse("there must be a tensor among the arguments that is always there")
    if tensors > MAX_TENSORS or optional > MAX_OPTIONAL or len(arguments) > MAX_ARGUMENTS:
        most = f"{MAX_TENSORS} tensors, of them {MAX_OPTIONAL} optional ones, and {MAX_ARGUMENTS} arguments in all"
        raise refuse(f"there may be {most}")
    _check_results(parsed, written, refuse)
    schema = Schema(parsed.name, tuple(map(_number_or_tensor, arguments)), len(parsed.returns), text, rows)
    for x in schema.arguments if rows else ():
        if x.type != _REDUCES.get(x.name, x.type):
            raise refuse(f"{x.name} of an operator over rows must be {_REDUCES[x.name]}, got {x.type}")
        if x.name in ("Row", "row"):
            raise refuse(f"{x.name} is what a functor over rows calls its row; choose another name")
    return schema


# What a schema calls a type of C++, or a number of any type.
_CALLED = {"double": "float", "number": "float", "long": "int", "int64_t": "int", "int32_t": "int"}
_TYPES = {"Optional[Tensor]": "Tensor?"}  # as a schema has them


def _number_or_tensor(x: Any) -> Argument:
    default = x.default_value if x.has_default_value() else REQUIRED
    return Argument(_TYPES.get(str(x.type), str(x.type)), x.name, x.alias_info is not None, x.kwarg_only, default)


# Of what an argument may be, or a list or an optional one of it: those that the stable ABI of torch 2.10 passes.
_PASSED = ("Tensor", "float", "int", "bool", "str", "ScalarType", "Device", "Layout", "MemoryFormat")
_INSTEAD = {
    "number": "a Scalar, a number of any type, which the stable ABI of torch 2.10 does not pass; take a float",
    "Generator": "a Generator, which the stable ABI passes from torch 2.13 on; take a seed, an int",
    "complex": "complex, which the stable ABI of torch 2.10 does not pass; take two floats",
}


def _read_kernel(parsed: Any, text: str, refuse: Any) -> Schema:
    """Read the schema of a kernel that takes whatever the dispatcher does."""
    arguments = [_argument_of_kernel(argument, refuse) for argument in parsed.arguments]
    if not any(argument.type in ("Tensor", "Tensor[]") for argument in arguments):
        raise refuse("there must be a tensor, or a list of tensors, among the arguments that is always there")
    results = [str(result.type) for result in parsed.returns]
    if "List[Tensor]" in results:
        raise refuse("a list among its results has a length that nobody knows before a call; return tensors one by one")
    if set(results) - {"Tensor"}:
        raise refuse(f"its results must be tensors, which a compiled program can hold, got {', '.join(results)}")
    if not results and not any(argument.is_written for argument in arguments):
        raise refuse("it must return a tensor, or write to an argument, as 'Tensor(a!) x' says")
    return Schema(parsed.name, tuple(arguments), len(results), text)


def _argument_of_kernel(argument: Any, refuse: Any) -> Argument:
    name = argument.name
    check_identifier("argument", name, underscores=True)
    base, suffix = str(argument.real_type), ""
    while wrapped := re.fullmatch(r"(List|Optional)\[(.*)\]", base):
        base, suffix = wrapped[2], ("[]" if wrapped[1] == "List" else "?") + suffix
    if base in _CALLED and base != "number":
        raise refuse(f"{name} is of the type {base}; write {_CALLED[base]}")
    if base not in _PASSED or argument.real_type.kind() == "SymBoolType":
        base = "SymBool" if base == "bool" else base
        raise refuse(f"{name} is {_INSTEAD.get(base, f'{base}, which the stable ABI of torch 2.10 does not pass')}")
    if base == "Tensor" and suffix not in ("", "?", "[]"):
        raise refuse(f"{name} must be a tensor, an optional one or a list of tensors; a list may be empty")
    default = argument.default_value if argument.has_default_value() else REQUIRED
    if base in ("ScalarType", "Device", "Layout", "MemoryFormat") and default not in (REQUIRED, None):
        raise refuse(f"the default of {name} must be None, or in ops.py alone: a schema has a number for it")
    return Argument(base + suffix, name, argument.alias_info is not None, argument.kwarg_only, default)


def _check_argument(argument: Any, refuse: Any, *, writes_out: bool, updates: bool) -> None:
    name, type_ = argument.name, _TYPES.get(str(argument.type), str(argument.type))
    if "List" in type_:
        raise refuse(f"{name} is a list; pass its elements one by one, or use --kernel, which takes lists")
    if argument.real_type.kind().startswith("Sym"):
        raise refuse(f"{name} is symbolic; an int is a constant of a compiled program")
    allowed = ("Tensor", "Tensor?", "float", "int", "bool")
    if type_ == "Tensor?" and argument.alias_info is not None:
        raise refuse(f"{name} is written to and must be there: leave the ? out, or use --kernel")
    if type_ not in allowed:
        written = re.sub(r"Optional\[(.*)\]", r"\1?", str(argument.real_type)).replace("number", "Scalar")
        near = get_close_matches(type_, allowed, 1)
        advice = f"; is it {near[0]}?" if near else ", or use --kernel, which takes others too"
        advice = f"; write {_CALLED[type_]}" if type_ in _CALLED else advice
        raise refuse(f"{name} must be one of {', '.join(allowed)}, got {written}{advice}")
    has_default = argument.has_default_value() and not (type_ == "Tensor?" and argument.default_value is None)
    if type_.startswith("Tensor") and (has_default or argument.kwarg_only):
        raise refuse(f"{name} must be positional and without a default but None, as every tensor is")
    if writes_out and (argument.has_default_value() or argument.kwarg_only):
        raise refuse(
            f"{name} must be positional and without a default, as all that stands before out; say it in ops.py"
        )
    if not (updates and name in ("out", "result")):  # which are taken where there is a result
        check_name("argument", name)


def _check_results(parsed: Any, written: list[str], refuse: Any) -> None:
    results = [str(result.type) for result in parsed.returns]
    if set(results) - {"Tensor"}:
        raise refuse(f"its results must be tensors, one by one, got {', '.join(results)}")
    if written and results:
        raise refuse(f"it writes to {', '.join(written)} and must return nothing, '-> ()', or use --kernel")
    if written:
        return
    if not results:
        raise refuse("it must return a tensor, or write to one, as 'Tensor(a!) x' says")
    if parsed.name.endswith("_out"):
        raise refuse("its name ends in _out, as that of an operator that writes into out; choose another name")


def check_identifier(what: str, name: str, *, underscores: bool = False) -> None:
    """Raise ``ValueError`` if something cannot have a name in Python; ``underscores`` may begin and end it, or not."""
    # It becomes a module, a project on PyPI and a dispatcher namespace, or a function in Python and in C++.
    wanted = "_?[A-Za-z][A-Za-z0-9_]*" if underscores else "[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?"
    if not re.fullmatch(wanted, name) or keyword.iskeyword(name):
        near = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        like = f", like {near!r}" if near != name and re.fullmatch(wanted, near) and not keyword.iskeyword(near) else ""
        ends = "begins with a letter" + (
            ", or an underscore and one," if underscores else ", does not end in an underscore"
        )
        raise ValueError(
            f"the name of the {what} must be a Python identifier of letters, digits and underscores that "
            f"{ends} and is no keyword{like}, got {name!r}"
        )


def check_name(what: str, name: str, *, underscores: bool = False) -> None:
    """Raise ``ValueError`` if a package, an operator or an argument cannot have a name."""
    check_identifier(what, name, underscores=underscores)
    if owner := _owner(what, name):
        raise ValueError(f"the name of the {what} must not be one that {owner} has already, got {name!r}")


def _owner(what: str, name: str) -> str:
    from . import _torch_names  # here: it imports torch, which --help does without

    if name in CPP_KEYWORDS:
        return "C++"
    if name in _USED[what]:
        return "the project itself"
    if what in ("argument", "package") and name.isupper() and len(re.findall("[A-Z_]", name)) > 1:
        return "a macro of C++"
    if what == "package":
        if name.lower() in map(str.lower, sys.stdlib_module_names):
            return "Python"
        if name.lower() == "torch" or name in _torch_names.namespaces():
            return "torch"
    elif what == "operator" and name in _torch_names.names_in_every_namespace():
        return "every namespace of torch.ops"
    return ""
