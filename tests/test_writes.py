"""Compiled programs write where eager mode does, with any operator, into any view."""

import operator
import random
from contextlib import nullcontext

import pytest
import torch
import writers
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.utils import run_and_get_code

import muladd_nb
from muladd_nb._layer import in_place

ops = torch.ops.muladd_nb
OURS = {
    "public": {
        "mymuladd": lambda a, b, c, out: muladd_nb.mymuladd(a, b, c, out=out),
        "mymul": lambda a, b, out: muladd_nb.mymul(a, b, out=out),
        "myadd": muladd_nb.myadd_out,
    },
    "raw": {
        "mymuladd": lambda a, b, c, out: (ops.mymuladd_out.Tensor if torch.is_tensor(c) else ops.mymuladd_out)(
            a, b, c, out
        ),
        "mymul": lambda a, b, out: [ops.mymul.out(a, b, out=out)][1:] or None,
        "myadd": ops.myadd_out,
    },
}
KINDS = {kind: OURS[kind] | writers.CALLS[kind] for kind in OURS}


def _hundred(x):
    return torch.full_like(x, 100.0)


def _read_before(call, x):
    before = -x
    call["scale_"](x, torch.ones_like(x))
    return before


def _returns_a_clone(call, x):
    call["scale_"](x, torch.ones_like(x))
    return x.clone()


def _writes_to_a_clone(call, x):
    y = x.clone()
    call["scale_"](y, torch.ones_like(x))
    return y


def _writes_to_a_part_of_a_clone(call, x):
    """If Inductor removes the clone, its views become views of a tensor that is written in part."""
    y = -x
    made = []
    for z in (x, y):
        z[:3].mul_(2)
        clone = z.clone()
        call["scale_"](clone[:3], x[3:6])
        call["ema_"](clone[6:9], x[3:6], 0.5)
        made.append(clone)
    return torch.stack([*made, y])


def _writes_to_clones_of_one(call, x):
    """If Inductor removes the clones, both targets of a call are one tensor."""
    made = []
    for y in (x, -x):
        a, b, c, d, e = (y.clone() for _ in range(5))
        call["adam2_"](a, b, c, x, 0.5)
        call["steps_"]([d, e], x, 0.5)
        made += [a + 2 * b + 3 * c, d + 2 * e]
    return torch.stack(made)


def _chain_of_a_clone(call, x):
    call["ema_"](x, x, 0.5)
    y = x.clone()
    call["scale_"](y, torch.ones_like(x))
    call["ema_"](y, x, 0.5)
    return y + x


def _again_and_again(call, x):
    for i in range(3):
        call["ema_"](x[2:8], _hundred(x[:6]), float(i))
    call["scale_"](x.view(-1), x.clone(), 0.5)


def _slices_that_overlap(call, x):
    for part in (x[:6], x[3:9], x[1:12:2]):
        call["scale_"](part, -torch.ones_like(part))
    x[4:6].add_(1)
    call["ema_"](x[5:10], x[5:10].clone(), 2.0)


# Views of 18 elements, which begin at the sixth element of their memory.
PROGRAMS = {
    "slice": lambda call, x: call["scale_"](x[:3], _hundred(x[:3])),
    "step": lambda call, x: call["ema_"](x[1:12:3], _hundred(x[:4]), 0.5),
    "rows": lambda call, x: call["mymul"](*[x.view(6, 3)[1:3]] * 3),
    "row of columns": lambda call, x: call["mymuladd"](*[x.view(6, 3, 1)[1, :, 0]] * 2, 0.5, x.view(6, 3, 1)[1, :, 0]),
    "row of a row": lambda call, x: call["ema_"](x.view(3, 3, 2)[1, 2], _hundred(x[:2]), 0.5),
    "column": lambda call, x: call["scale_"](x.view(6, 3)[:, 1], _hundred(x[:6])),
    "transposed": lambda call, x: call["ema_"](x.view(6, 3).t(), _hundred(x.view(3, 6)), 0.5),
    "unbind": lambda call, x: call["adam2_"](*x.view(3, 6).unbind(), _hundred(x[:6]), 0.5),
    "chunk": lambda call, x: call["adam2_"](*x.chunk(3), _hundred(x[:6]), 0.5),
    "rows of a state": lambda call, x: call["adam2_"](_hundred(x[:6]), *x[6:].view(2, 6), _hundred(x[:6]), 0.5),
    "list": lambda call, x: call["steps_"]([x[:3], x[4:7], x[9:18:3]], _hundred(x[:3]), 0.5),
    "optional": lambda call, x: call["fold_"](_hundred(x[:3]), x[4:7], [x[8:11], x[12:15]], 0.5),
    "absent": lambda call, x: call["fold_"](_hundred(x[:3]), None, [x[8:11]], 0.5),
    "out of a view": lambda call, x: call["mymuladd"](_hundred(x[:3]), x[:3], 0.5, x[9:12]),
    "out of itself": lambda call, x: call["myadd"](x[:3], x[:3], x[:3]),
    "clone as out": lambda call, x: call["mymuladd"](x.view(2, 9), x.view(2, 9), x.view(2, 9)[0].clone(), x.view(2, 9)),
    "clone, transposed": lambda call, x: call["mymul"](
        x[:16].view(4, 4).clone().t(), x[:16].view(4, 4), x[:16].view(4, 4)
    ),
    "clone, expanded": lambda call, x: call["myadd"](x.view(3, 6)[:1].clone().expand(3, 6), x.view(3, 6), x.view(3, 6)),
    "clone in a row": lambda call, x: call["ema_"](x.view(3, 6), x.view(3, 6)[0].clone(), 0.5),
    "clone in a kernel": lambda call, x: call["scale_"](x, x.clone()),
    "clone of a part": lambda call, x: call["steps_"]([x[:9], x[9:]], x[:9].clone(), 0.5),
    "read before": _read_before,
    "returns a clone": _returns_a_clone,
    "writes to a clone": _writes_to_a_clone,
    "writes to a part of a clone": _writes_to_a_part_of_a_clone,
    "writes to clones of one": _writes_to_clones_of_one,
    "chain of a clone": _chain_of_a_clone,
    "again and again": _again_and_again,
    "slices that overlap": _slices_that_overlap,
}
QUICK = [
    "slice",
    "unbind",
    "optional",
    "clone in a row",
    "clone as out",
    "returns a clone",
    "writes to a part of a clone",
    "writes to clones of one",
]


def all_of(programs, kinds):
    pairs = [(program, KINDS[kind]) for program in programs for kind in kinds]

    def f(*tensors):
        each = iter(tensors)
        results = [program(call, next(each)) for program, call in pairs]
        return [y for y in results if y is not None]

    return f


def written(f, count):
    memories = [torch.arange(1.0, 25.0) for _ in range(count)]
    results = f(*(memory[6:] for memory in memories))
    return [*memories, *results]


@pytest.mark.parametrize(
    ("programs", "backend", "dynamic"),
    [
        pytest.param(PROGRAMS, "aot_eager", False, id="traced"),
        pytest.param(PROGRAMS, "aot_eager", True, id="traced, dynamic"),
        pytest.param({name: PROGRAMS[name] for name in QUICK}, "inductor", False, id="inductor"),
        pytest.param(PROGRAMS, "inductor", False, id="inductor, all", marks=pytest.mark.slow),
        pytest.param(PROGRAMS, "inductor", True, id="inductor, dynamic", marks=pytest.mark.slow),
    ],
)
def test_compiled(programs, backend, dynamic):
    """One program with all of them compiles as fast as a program with one."""
    f = all_of(programs.values(), KINDS)
    count = len(programs) * len(KINDS)
    got = written(torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic), count)
    expected = written(f, count)
    wrong = [i for i, (x, y) in enumerate(zip(got, expected, strict=True)) if not torch.equal(x, y)]
    assert not wrong, [([*programs][i // len(KINDS)], got[i], expected[i]) for i in wrong[:3] if i < count]


def test_what_is_read_after_a_write_is_read_after_it_if_loops_with_other_ranges_are_fused():
    def f(a, b):
        muladd_nb.myadd_out(a, b, a)
        muladd_nb.myadd_out(b, a, b)
        return a * b

    def halves():
        return torch.arange(30.0).view(5, 6).split(3, 1)

    assert torch.equal(torch.compile(f, fullgraph=True)(*halves()), f(*halves()))


def test_functionalized_without_a_compiler():
    f = all_of(PROGRAMS.values(), ["raw"])
    count = len(PROGRAMS)
    assert all(map(torch.equal, written(torch.func.functionalize(f), count), written(f, count)))
    x = torch.arange(36.0).view(2, 18)
    for program in (PROGRAMS["slice"], PROGRAMS["unbind"], PROGRAMS["returns a clone"]):
        once = lambda x, program=program: [program(KINDS["raw"], x), x.clone()][1]  # noqa: E731
        assert torch.equal(torch.vmap(torch.func.functionalize(once))(x.clone()), torch.vmap(once)(x.clone()))
    with pytest.raises(RuntimeError, match="what it writes to has no derivative"):
        torch.func.grad(torch.func.functionalize(lambda x: once(x * 1).sum()))(x[0])


TRACED = {
    "functionalize": torch.func.functionalize,
    "compiled": lambda f: torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=False),
    "compiled, dynamic": lambda f: torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True),
}
VIEWS = {
    "shifted": (lambda x: (x[: len(x) - 1], x[1:]), True),
    "transposed": (lambda x: (x[:9].view(3, 3), x[:9].view(3, 3).t()), True),
    "two names of one": (lambda x: (x[:], x.view(len(x))), True),
    "halves": (lambda x: (x[: len(x) // 2], x[len(x) // 2 :]), False),
    "interleaved": (lambda x: (x[::2], x[1::2]), False),
    "columns": (lambda x: x.view(len(x) // 2, 2).unbind(1), False),
}


@pytest.mark.parametrize("traced", TRACED.values(), ids=TRACED)
@pytest.mark.parametrize(("views", "is_refused"), VIEWS.values(), ids=VIEWS)
def test_two_targets_that_share_memory_are_refused_as_in_eager_mode(traced, views, is_refused):
    def f(x):
        p, m = views(x)
        KINDS["raw"]["adam2_"](p, m, torch.zeros_like(p), torch.ones_like(p), 0.5)

    x = torch.arange(18.0)
    with pytest.raises(RuntimeError, match="must share no memory with") if is_refused else nullcontext():
        traced(f)(x)
    expected = torch.arange(18.0)
    with pytest.raises(RuntimeError, match="must share no memory with") if is_refused else nullcontext():
        f(expected)
    assert torch.equal(x, expected)


def test_targets_side_by_side_leave_sizes_dynamic():
    def f(x):
        p, m = x[:, :2], x[:, 2:]
        KINDS["raw"]["adam2_"](p, m, torch.zeros_like(p), torch.ones_like(p), 0.5)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for n in (5, 7):
        x, expected = (torch.arange(4.0 * n).view(n, 4) for _ in range(2))
        torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
        f(expected)
        assert torch.equal(x, expected)


@pytest.mark.parametrize("traced", TRACED.values(), ids=TRACED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_overlaps_itself_is_refused_as_in_eager_mode(traced, kind):
    def f(x):
        out = x.as_strided((x.shape[0] - 3, 4), (1, 1))
        KINDS[kind]["mymul"](torch.ones_like(out), torch.ones_like(out), out)

    with pytest.raises(RuntimeError, match="out must not overlap itself, got shape"):
        traced(f)(torch.zeros(18))


@pytest.mark.parametrize("kind", KINDS)
def test_out_loses_no_gradient_where_writes_are_traced(kind):
    def f(x):
        out = torch.empty(4)
        KINDS[kind]["mymul"](x, x, out)
        return out

    with pytest.raises(RuntimeError, match="mymul.*no gradient is recorded through out, but a requires grad"):
        torch.func.functionalize(f)(torch.ones(4, requires_grad=True))


class Program(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
        self.register_buffer("state", torch.arange(1.0, 25.0)[6:])

    def forward(self, *tensors):
        results = self.f(self.state, *tensors)
        return [self.state + 0, *results]


@pytest.mark.parametrize("decomposed", [False, True])
def test_exported(decomposed):
    f = all_of(PROGRAMS.values(), ["public"])
    count = len(PROGRAMS)

    def module():
        return Program(f), [torch.arange(1.0, 25.0) for _ in range(count - 1)]

    eager, memories = module()
    expected = eager(*(x[6:] for x in memories)), memories
    exported = torch.export.export(Program(f), tuple(torch.arange(1.0, 25.0)[6:] for _ in range(count - 1)))
    exported = exported.run_decompositions() if decomposed else exported
    _, memories = module()
    got = exported.module()(*(x[6:] for x in memories)), memories
    for xs, ys in zip(got, expected, strict=True):
        assert all(map(torch.equal, xs, ys))


IN_PLACE = {
    "inputs": lambda call, x, y: call["adam2_"](x, y, y.new_ones(18), y.neg(), 0.5),
    "a slice": lambda call, x, y: call["scale_"](x[2:8], y[:6]),
    "flat": lambda call, x, y: call["steps_"]([x.view(3, 6).view(-1)], y, 0.5),
    "twice": lambda call, x, y: [call["ema_"](x, y, 0.5), call["scale_"](x, y)][:0],
    "out": lambda call, x, y: call["myadd"](y, x, x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_written_in_place_where_nobody_can_tell(name):
    """There is no copy before or after the write, so the write takes no longer than the operator."""
    f = lambda x, y: IN_PLACE[name](KINDS["raw"], x, y)  # noqa: E731
    _, (code,) = run_and_get_code(torch.compile(f, fullgraph=True), torch.ones(18), torch.ones(18))
    body = code.split("def call")[1]
    assert "torch.ops.muladd_nb." in body
    computed = name == "inputs"  # one loop computes two tensors
    assert body.count("empty_strided_cpu(") == 2 * computed
    assert body.count("cpp_fused") == computed  # a copy would be a loop, too, whose name need not say so


# For each operator that returns the new values of its first argument, the form that writes them in place.
WRITES = {
    getattr(ops, f"_functional_{form.operator}").default: form
    for form in writers.FORMS
    if form.operator in ("_test_ema_", "_test_scale_")
}


def random_graph(seed):
    """Return a random graph of views, reads, writes that return new values, and copies, as Inductor gets them."""
    draw = random.Random(seed)
    graph = torch.fx.Graph()

    def add(target, *args):
        node = graph.call_function(target, args)
        node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda x: x.meta["val"]))
        return node

    nodes = [graph.placeholder(name) for name in "xy"]
    for node in nodes:
        node.meta["val"] = torch.arange(1.0, 13.0)
    for _ in range(draw.randint(4, 12)):
        x = draw.choice(nodes)
        size = len(x.meta["val"])
        y = draw.choice([node for node in nodes if len(node.meta["val"]) == size][-3:])
        kind = draw.choice(["view", "view", "read", "write", "write", "copy", "copy"])
        if kind == "view" and size > 1:
            begin, step = draw.choice([(0, 1), (size // 2, 1), (size // 4, 1), (0, 2), (1, 2)])
            end = begin + size // 2 * step
            nodes.append(add(torch.ops.aten.slice.Tensor, x, 0, begin, end, step))
        elif kind == "read":
            nodes.append(add(torch.ops.aten.neg.default, x))
        elif kind == "write":
            call = add(draw.choice([*WRITES]), x, y, 0.5)
            nodes.append(add(operator.getitem, call, 0))
        elif kind == "copy" and get_node_storage(x) != get_node_storage(y):
            add(torch.ops.aten.copy_.default, x, y)
    graph.output(draw.sample(nodes, draw.randint(0, 3)))
    return graph


def executed(graph, forms):
    """Return the inputs and results of a graph, and whether each shares memory with an input.

    Calls in ``forms`` write in place.
    """
    values = {}
    for node in graph.nodes:
        args = torch.fx.node.map_arg(node.args, values.get)
        if node.op == "placeholder":
            values[node] = torch.arange(1.0, 13.0) * (len(values) + 1)
        elif node.op == "output":
            inputs = [x for key, x in values.items() if key.op == "placeholder"]
            tensors = [*inputs, *args[0]]
        elif node in forms:
            forms[node].op(*args)
            values[node] = [args[0]]
        else:
            values[node] = node.target(*args)
    return tensors, [any(torch._C._is_alias_of(x, y) for y in inputs) for x in tensors]


def test_what_is_written_in_place_leaves_every_value_as_it_was():
    """Random programs seldom reach these decisions, because the compiler makes the same graph of most of them."""
    count = 0
    for seed in range(2000):
        graph = random_graph(seed)
        expected, shared = executed(graph, {})
        locations, forms = in_place._Locations(get_node_storage, graph), {}
        for call in [node for node in graph.nodes if node.target in WRITES]:
            form, target, results = WRITES[call.target], call.args[0], in_place._results(call, 0)
            copies = in_place._copies(locations, call, target, results, is_kernel=form.kind == "kernel")
            if copies is not None:
                forms[call] = form
                in_place._note(locations, target, results, copies)
        count += len(forms)
        got, is_shared = executed(graph, forms)
        assert all(map(torch.equal, got, expected)), f"seed {seed}: {graph}"
        assert is_shared == shared, f"seed {seed}: {graph}"
    assert count > 100


def test_what_is_written_twice_is_refused_in_a_compiled_program_too():
    f = lambda p, m: KINDS["public"]["adam2_"](p, m, m, p, 0.5)  # noqa: E731
    for run in (f, torch.compile(f, backend="aot_eager"), torch.compile(f)):
        with pytest.raises(RuntimeError, match="share no memory"):
            run(torch.ones(3), torch.ones(3))


@pytest.mark.parametrize("name", ["adam2_", "fold_"])
def test_what_is_written_twice_is_refused_if_it_is_lazily_negated(name):
    x = torch.ones(3)
    p = torch._neg_view(x)
    args = {"adam2_": (p, p, x.clone(), x.clone(), 0.5), "fold_": (x.clone(), p, [p], 0.5)}[name]
    with pytest.raises(RuntimeError, match=f"{name}: .* is written to and must share no memory with "):
        KINDS["raw"][name](*args)
    assert torch.equal(x, torch.ones(3))


def test_autocast_casts_what_is_read_once():
    def f(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            KINDS["public"]["scale_"](x, y)
        return x

    x, y = torch.arange(3.0), torch.full((3,), 1 / 3)
    for backend in ("aot_eager", "inductor"):
        assert torch.equal(torch.compile(f, fullgraph=True, backend=backend)(x.clone(), y), f(x.clone(), y))


def test_autocast_casts_to_the_dtype_of_the_first_floating_point_tensor_that_is_written():
    schema = "_test_count_(Tensor(a!) count, Tensor(b!)? total, Tensor x) -> ()"
    count_ = writers.kernel(schema, lambda count, total, x: [count + 1, total + torch.dot(total, x) - 1]).op
    count, total = torch.zeros(2, dtype=torch.int64), torch.ones(2)
    with torch.autocast("cpu", torch.bfloat16):
        count_(count, total, torch.ones(2, dtype=torch.bfloat16))
    assert total.tolist() == [2, 2]


def test_a_call_without_any_tensor_names_the_list():
    call = writers.public_of(writers.kernel("_test_halve_(Tensor(a!)[] xs, float by=0.5) -> ()", lambda xs, by: xs))
    for run in (call, torch.compile(call, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="halve_: xs must have a tensor, got none"):
            run([])
