"""Read an author's schemas with torch's parser, and refuse schemas and names that cannot work."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import re
import string
import sys
from difflib import get_close_matches
from typing import Any, NamedTuple

# src/elementwise/operator.h allows more tensors and arguments, for derivatives.
MAX_TENSORS, MAX_OPTIONAL, MAX_ARGUMENTS = 12, 3, 16

CPP_KEYWORDS = frozenset(
    """alignas alignof asm auto bool break case catch char class concept const consteval constexpr constinit
    continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept nullptr operator private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq""".split()  # noqa: SIM905
)
# Names that the generated files use themselves.
_USED = {
    "package": {
        "cases", "conftest", "elementwise", "muladd_nb", "operators", "std", "test", "tests",
    },
    "operator": {
        "C", "FORMS", "Operator", "Operators", "T", "Tensor", "c", "dtensor", "executorch", "flops", "forms", "layer",
        "errno", "operators", "ops", "public", "t", "tensor", "torch",
    },
    "argument": {
        "C", "Elements", "Optional", "Tensor", "errno", "int64_t", "is_number", "out", "result", "torch",
    },
}  # fmt: skip
# Parameters of torch's functions that also take an operator's arguments by name, such as the policy of a checkpoint.
_PARAMETERS_OF_TORCH = {"cls", "ctx", "kernel", "keyset", "op", "self"}
# Arguments that say how an operator over rows reduces, and their types.
_REDUCES = {"dim": "int", "normalized_shape": "SymInt[]", "keepdim": "bool"}
REQUIRED = inspect.Parameter.empty  # the default of an argument that has none


class _Type(NamedTuple):
    """A type of torch's schemas: its name in C++ and in Python, and what a test passes for it, alone and in a list."""

    cpp: str
    python: str
    example: str
    elements: str = ""  # by default the example, twice


# The types that the stable ABI of torch 2.10 can pass, as arguments, optional arguments and elements of lists.
TYPES = {
    "Tensor": _Type("Tensor", "Tensor", "tensor()"),
    "float": _Type("double", "float", "either(1.5, 0.5)", "1.5, 0.5"),
    "int": _Type("int64_t", "int", "either(2, -1)", "2, 3"),
    "bool": _Type("bool", "bool", "either(True, False)", "True, False"),
    "str": _Type("std::string", "str", '"text"'),
    "ScalarType": _Type("torch::headeronly::ScalarType", "torch.dtype", "torch.float32"),
    "Device": _Type("torch::stable::Device", "torch.device | str", 'torch.device("cpu")'),
    "Layout": _Type("torch::headeronly::Layout", "torch.layout", "torch.strided"),
    "MemoryFormat": _Type("torch::headeronly::MemoryFormat", "torch.memory_format", "torch.contiguous_format"),
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
        """Its type without the marks for optional arguments and lists."""
        return self.type.rstrip("?[]")

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, an optional tensor or a list of tensors."""
        return self.base == "Tensor"

    @property
    def annotation(self) -> str:
        """Its type in Python."""
        text = TYPES[self.base.replace("SymInt", "int")].python
        for suffix in re.findall(r"\?|\[\]", self.type):
            text = f"list[{text}]" if suffix == "[]" else f"{text} | None"
        return text


@dataclasses.dataclass(frozen=True)
class Schema:
    """The schema of an operator that the generator can write."""

    name: str
    arguments: tuple[Argument, ...]  # without `out`
    results: int  # how many; 0 if it writes into `out` or returns nothing
    text: str  # the author's text
    is_over_rows: bool = False
    has_kernel: bool = False

    @property
    def declaration(self) -> str:
        """The declaration of an operator with a functor, the same in C++ and in Python."""
        typed: list[str] = []
        letters = iter(string.ascii_lowercase)
        for x in self.arguments:
            typed += ["*"] * (x.is_keyword and "*" not in typed)
            mark = f"({next(letters)}!)" if x.is_written else ""
            typed.append(f"{x.type}{mark} {x.name}" + (f"={x.default}" if x.default is not REQUIRED else ""))
        return f"{self.operator}({', '.join(typed)})"

    @property
    def operator(self) -> str:
        """The name in the declaration."""
        return self.name if self.results or self.written else self.name.removesuffix("_out")

    @property
    def written(self) -> list[Argument]:
        """The tensors that it writes to, without ``out``."""
        return [x for x in self.arguments if x.is_written]

    @property
    def read(self) -> list[Argument]:
        """The tensors that it only reads."""
        return [x for x in self.arguments if x.is_tensor and not x.is_written]

    @property
    def factors(self) -> list[Argument]:
        """The factors of a new kernel's product: the tensors that it reads, and numbers that are no lists."""
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
        """The first required tensor or, if there is none, the first list of tensors."""
        return next(x for type_ in ("Tensor", "Tensor[]") for x in self.arguments if x.type == type_)

    @property
    def returns(self) -> str:
        """The return annotation in Python."""
        return {0: "None", 1: "Tensor"}.get(self.results, f"tuple[{', '.join(['Tensor'] * self.results)}]")

    @property
    def stem(self) -> str:
        """The name of its files and of functions in them. C++ reserves names that begin with an underscore."""
        return self.name.strip("_")


def functor_name(operator: str) -> str:
    """Return the name of an operator's functor: ``RowNorm`` for ``row_norm``."""
    return "".join(map(str.capitalize, operator.split("_")))


def read(text: str, *, kernel: bool, rows: bool = False) -> Schema:
    """Read the schema of an operator; raise ``ValueError`` with the reason if the generator cannot write it."""
    if not text.isascii():  # torch's parser cuts other letters into bytes
        raise ValueError(f"{text!r} is no schema: it must be of ASCII letters")
    from . import _torch_names

    text = re.sub(rf"{_QUOTED}|\s+", lambda found: found[1] or " ", text.strip())  # a default keeps its spaces
    if named := re.match(r"\s*([\w-]*-[\w-]*)\s*\(", text):
        check_identifier("operator", named[1])
    typed = re.search(rf"[(,]\s*({'|'.join(_CALLED)})\?? (\w+)\s*=", text)  # torch's parser rejects their defaults
    if typed and typed[1] != "Scalar":
        raise ValueError(f"{text!r}: {typed[2]} is of the type {typed[1]}; write {_CALLED[typed[1]]}")
    try:
        parsed = _torch_names.parse_schema(text)
    except IndexError:  # from C++: std::out_of_range
        raise ValueError(f"{text!r}: a number in it is too large for its type") from None
    except RuntimeError as error:
        reason = "\n".join(line for line in str(error).splitlines() if line.strip())
        cure = next((f"; {cure}" for slip, cure in _SLIPS.items() if re.search(slip, text)), "")
        raise ValueError(
            f"{text!r} is no schema, as 'softclip(Tensor x, float limit) -> Tensor' is one{cure}; torch says:\n{reason}"
        ) from None

    def refuse(reason: str) -> ValueError:
        return ValueError(f"{text!r}: {reason}")

    if "::" in parsed.name:
        raise refuse("leave the namespace out; it is the name of the package")
    if parsed.overload_name:
        raise refuse(f"overloads are not supported: give {parsed.name}.{parsed.overload_name} a name of its own")
    check_name("operator", parsed.name, underscores=kernel or not parsed.name.startswith("_"))  # such as `adam_`
    if "..." in re.sub(_QUOTED, "", text):
        raise refuse("list every argument and every result; '...' is not supported")
    if any(result.alias_info is not None for result in parsed.returns):
        raise refuse("it returns a view, or what it writes to, which does not compile right; return new tensors, or ()")
    names = [x.name for x in parsed.arguments]
    with_default = next((x.name for x in parsed.arguments if x.has_default_value()), "")
    for x in parsed.arguments[names.index(with_default) if with_default else len(names) :]:
        if not (x.kwarg_only or x.has_default_value()):  # torch allows that for lists
            raise refuse(f"{x.name} has no default, and follows {with_default}, which has one: put it before that")
    for x in parsed.arguments:
        if names.count(x.name) > 1:
            raise refuse(f"two arguments are called {x.name}: rename one")
        if x.alias_info is not None and not x.alias_info.is_write:
            raise refuse(f"{x.name} is aliased; results are new tensors")
        if x.real_type.kind() == "SymIntType" and not kernel:
            raise refuse(f"{x.name} is symbolic; write int, a constant of a compiled program, or use --kernel")
        if x.kwarg_only and x.name in _PARAMETERS_OF_TORCH:
            raise refuse(f"torch cannot pass {x.name} by name: put it before the *, or choose another name")
        if x.has_default_value() and not _fits(x.default_value, str(x.real_type)):
            cure = "; write Tensor?" * (str(x.real_type) == "Tensor")
            raise refuse(f"the default of {x.name} must be of its type, {x.real_type}, got {x.default_value!r}{cure}")
    updates = any(x.alias_info for x in parsed.arguments)
    if parsed.name.endswith("_") and not updates:  # torch would return a DTensor argument as the result
        raise refuse("to torch a name that ends in _ says that arguments are updated; choose another name")
    arguments = [_read_argument(x, refuse) for x in parsed.arguments]
    written = [x.name for x in arguments if x.is_written]
    writes_out = not kernel and written == ["out"] and names[-1] == "out" and parsed.name.endswith("_out")
    if writes_out:
        arguments.pop()
    for place, x in enumerate(arguments):
        if kernel:
            check_identifier("argument", x.name, underscores=True)
        elif rows and (x.name, x.type) == ("normalized_shape", "int[]"):
            arguments[place] = dataclasses.replace(x, type="SymInt[]")  # so compiled programs may change the sizes
        elif rows and x.type != _REDUCES.get(x.name, x.type):
            must = f"{x.name} of an operator over rows must be {_REDUCES[x.name]}, got {x.type}"
            raise refuse(must + "; for the last dimensions, write SymInt[] normalized_shape" * (x.name == "dim"))
        else:
            _check_argument(x, refuse, writes_out=writes_out, updates=bool(written) and not writes_out)
    if not any(x.type in ("Tensor", "Tensor[]") for x in arguments):
        raise refuse(f"there must be a tensor{', or a list of tensors,' * kernel} that is not optional")
    results = [str(result.type) for result in parsed.returns]
    if set(results) - {"Tensor"}:
        got = ", ".join(results)
        raise refuse(f"its results must be tensors, one by one, as compiled programs need, got {got}")
    if not (results or written):
        raise refuse("it must return a tensor, or write to one: 'Tensor(a!) x'")
    schema = Schema(parsed.name, tuple(arguments), len(results), text, rows, kernel)
    if kernel:
        return schema
    if written and results:
        raise refuse(f"it writes to {', '.join(written)} and must return nothing, '-> ()', or use --kernel")
    if results and parsed.name.endswith("_out"):
        raise refuse("its name ends in _out, which is for operators that write into out; choose another name")
    optional = sum(x.type == "Tensor?" for x in arguments)
    tensors = sum(x.is_tensor for x in arguments)
    if tensors > MAX_TENSORS or optional > MAX_OPTIONAL or len(arguments) > MAX_ARGUMENTS:
        most = f"{MAX_TENSORS} tensors, of them {MAX_OPTIONAL} optional ones, and {MAX_ARGUMENTS} arguments in all"
        raise refuse(f"there may be {most}")
    for x in schema.arguments if rows else ():
        if x.type == "SymInt[]" and (x.default is not REQUIRED or "dim" in schema.reduces):
            raise refuse(f"{x.name} must have no default, and the schema no dim")
        if x.name in ("Row", "row"):
            raise refuse(f"a functor over rows uses the name {x.name} itself; choose another name")
    return schema


def _fits(default: Any, type_: str) -> bool:
    """Return whether an argument of this type can have this default. torch's parser checks this only for lists."""
    type_, marks = re.subn(r"^Optional\[(.*)\]$", r"\1", type_)
    types = {"int": int, "float": float, "bool": bool, "str": str}
    return marks > 0 if default is None else type(default) is types.get(type_, type(default))


# The type to write in a schema, for types that authors write by mistake.
_CALLED = {
    **dict.fromkeys(("double", "number", "half", "float16", "float32", "float64"), "float"),
    **dict.fromkeys(("long", "int32", "int64", "int32_t", "int64_t", "size_t"), "int"),
    "string": "str",
    "dtype": "ScalarType",
    "device": "Device",
    "tensor": "Tensor",
    "torch.Tensor": "Tensor",
}
_QUOTED = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# Common mistakes that torch's parser reports unclearly: a pattern that finds each in the schema, and the advice.
_SLIPS = {
    r",\s*\)": "leave out the comma before the parenthesis",
    r"=\s*(true|false)\b": "write True or False",
    r"[;:.]\s*$": "leave out what stands after the results",
    r"^[^>]*\)\s*$": "write its results, as in '-> Tensor'",
    r"^\s*def\b|\w\s*:\s*\w+\s*[,=)]": "write the type before the name, as in 'float limit'",
    r"\bconst\b|&|::|<|\b(Optional|List)\[": "write Tensor, Tensor?, Tensor[], float, int, bool or str",
}
# If the stable ABI cannot pass a type, the error says what to take instead.
_INSTEAD = {
    "number": "a Scalar, a number of any type, which the stable ABI of torch 2.10 does not pass; take a float",
    "SymBool": "SymBool, which the stable ABI of torch 2.10 does not pass; take a bool",
    "Generator": "a Generator, which the stable ABI passes from torch 2.13 on; take a seed, an int",
    "complex": "complex, which the stable ABI of torch 2.10 does not pass; take two floats",
}


def _read_argument(argument: Any, refuse: Any) -> Argument:
    """Read an argument, which may have any type that the stable ABI passes."""
    name = argument.name
    base, suffix = str(argument.real_type), ""
    while wrapped := re.fullmatch(r"(List|Optional)\[(.*)\]", base):
        base, suffix = wrapped[2], ("[]" if wrapped[1] == "List" else "?") + suffix
    if base in _CALLED and base != "number":
        raise refuse(f"{name} is of the type {base}; write {_CALLED[base]}")
    if base not in TYPES or argument.real_type.kind() == "SymBoolType":
        base = "SymBool" if base == "bool" else base
        near = "".join(f"; is it {x}?" for x in get_close_matches(base, TYPES, 1))
        other = f"{base}, which the stable ABI of torch 2.10 does not pass; it passes {', '.join(TYPES)}{near}"
        raise refuse(f"{name} is {_INSTEAD.get(base, other)}")
    if base == "Tensor" and suffix not in ("", "?", "[]"):
        raise refuse(f"{name} must be a tensor, an optional tensor or a list of tensors; a list may be empty")
    default = argument.default_value if argument.has_default_value() else REQUIRED
    if base in ("ScalarType", "Device", "Layout", "MemoryFormat") and default not in (REQUIRED, None):
        raise refuse(f"the default of {name} must be None; write another default in ops.py only")
    return Argument(base + suffix, name, argument.alias_info is not None, argument.kwarg_only, default)


def _check_argument(x: Argument, refuse: Any, *, writes_out: bool, updates: bool) -> None:
    """Check an argument of an operator with a functor."""
    allowed = ("Tensor", "Tensor?", "float", "int", "bool")
    if x.type.endswith("[]"):
        raise refuse(f"{x.name} is a list; pass its elements one by one, or use --kernel, which takes lists")
    if x.type == "Tensor?" and x.is_written:
        raise refuse(f"{x.name} is written to and cannot be optional: leave the ? out, or use --kernel")
    if x.type not in allowed:
        must = f"{x.name} must be one of {', '.join(allowed)}, got {x.type}"
        raise refuse(f"{must}, or use --kernel, which takes others too")
    has_default = x.default is not REQUIRED and not (x.type == "Tensor?" and x.default is None)
    if x.is_tensor and (has_default or x.is_keyword):
        raise refuse(f"{x.name} must be positional, as a tensor, and have no default except None")
    if writes_out and (x.default is not REQUIRED or x.is_keyword):
        must = f"{x.name} stands before out, so it must be positional and have no default"
        raise refuse(f"{must}; write the default in ops.py")
    if not (updates and x.name in ("out", "result")):  # these names are taken only if the operator has a result
        check_name("argument", x.name)


def check_identifier(what: str, name: str, *, underscores: bool = False) -> None:
    """Raise ``ValueError`` if a name is no identifier. With ``underscores`` it may begin and end with one."""
    # The name becomes a module, a project on PyPI and a dispatcher namespace, or a function in Python and in C++.
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
    """Raise ``ValueError`` if a package, an operator or an argument cannot have this name."""
    check_identifier(what, name, underscores=underscores)
    if what == "argument" and "__" in name:
        raise ValueError(
            f"an argument must not have two underscores in a row, as those of derivatives do, got {name!r}"
        )
    if owner := _owner(what, name):
        raise ValueError(f"the name of the {what} must not be one that {owner} has already, got {name!r}")


def _owner(what: str, name: str) -> str:
    from . import _torch_names  # imported here because it imports torch, which --help does not need

    if name in CPP_KEYWORDS:
        return "C++"
    if name in _USED[what]:
        return "the generated project"
    if what in ("argument", "package") and name.isupper() and len(re.findall("[A-Z_]", name)) > 1:
        return "a macro of C++"
    if what == "package":
        if name.lower() in map(str.lower, sys.stdlib_module_names):
            return "Python"
        if name.lower() == "torch" or name in _torch_names.namespaces():
            return "torch"
        if name.lower() in ("numpy", "pytest", "executorch"):
            return "a package that the project imports"
    elif what == "operator" and name in _torch_names.names_in_every_namespace():
        return "every namespace of torch.ops"
    return ""
