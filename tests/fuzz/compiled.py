"""Random programs of views, writes and gradients, compiled and exported, give the values and gradients of eager mode.

They also leave the same memory. A compiled program may accept a call that eager mode refuses, because it copies.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass

import torch
import writers
from calls import RETURNING, WRITES, Call
from hypothesis import given
from hypothesis import strategies as st

COUNTS = Counter()


@dataclass
class Write:
    """An operator from writers.py, element-wise or with its own kernel. It writes to ``out`` and some inputs."""

    kind: str  # raw or public
    name: str
    writes = True

    @property
    def names(self):
        return [*"abc"[: {"adam2_": 3, "steps_": 2, "fold_": 3}.get(self.name, 1)]]

    def __call__(self, *x, out, c):
        call = writers.CALLS[self.kind][self.name]
        if self.name == "steps_":
            return call([out, x[0]], x[1], c)
        if self.name == "fold_":
            return call(x[0], x[1], [out, x[2]], c)
        return call(out, *x, c)


UPDATES = [Write(kind, name) for kind, calls in writers.CALLS.items() for name in calls]

# Views of 6 of 24 elements.
VIEWS = {
    "head": lambda y: y[:6],
    "tail": lambda y: y[18:],
    "middle": lambda y: y[7:13],
    "steps": lambda y: y[2:20:3],
    "row": lambda y: y.view(4, 6)[2],
    "column": lambda y: y.view(6, 4)[:, 1],
    "block": lambda y: y.view(4, 6)[1:3, 2:5].reshape(6),  # a copy
    "clone": lambda y: y[7:13].clone(),
    "new": lambda y: torch.full_like(y[:6], 2.0),
    "rows": lambda y: y.view(8, 3)[3:5].view(6),
    "expanded": lambda y: y[4:5].expand(6),
    "chunk": lambda y: y.chunk(4)[1],
    "split": lambda y: y.split(6)[3],
    "unbound": lambda y: y.view(6, 4).unbind(1)[2],
    "folded": lambda y: y.view(2, 12)[1].unfold(0, 2, 2)[:, 0],
}


@dataclass
class Statement:
    """An operator on views of the two inputs or of earlier results. Later statements can use its result."""

    call: Call | Write
    inputs: list[tuple[str, int]]  # a view, and the index of its base
    out: tuple[str, int]
    changing: bool  # c is an argument of the program, not a constant


@dataclass
class Program:
    statements: list[Statement]
    offsets: list[int]  # where the two inputs begin in their memory, which they may share
    shared: bool

    def run(self, y, z, c):
        values, results = [y, z], []
        for statement in self.statements:
            x = [VIEWS[view](values[of % 2]) for view, of in statement.inputs]
            if results:
                x[0] = results[-1]
            out = VIEWS[statement.out[0]](values[statement.out[1] % 2])
            number = c if statement.changing else 0.5
            result = statement.call(*x, out=out, c=number)
            results.append(out.clone() if statement.call.writes else result)
        return torch.stack(results)

    def inputs(self, dtype):
        first = torch.arange(60, dtype=dtype).sin()
        second = first if self.shared else first.cos()
        return [first, second], [first[self.offsets[0] :][:24], second[self.offsets[1] :][:24]]


@st.composite
def programs(draw, of):
    views = st.tuples(st.sampled_from(list(VIEWS)), st.integers(0, 1))
    statements = []
    for _ in range(draw(st.integers(1, 3))):
        call = draw(st.sampled_from(of))
        inputs = draw(st.lists(views, min_size=len(call.names), max_size=len(call.names)))
        out = draw(views)
        if call.writes and draw(st.booleans()):
            inputs[-1] = out  # in place
        statements.append(Statement(call, inputs, out, draw(st.booleans())))
    shared = draw(st.integers(0, 4)) == 4
    first = draw(st.sampled_from([0, 0, 3, 6]))
    return Program(statements, [first, first if shared else draw(st.sampled_from([0, 5]))], shared)


@given(
    program=st.one_of(programs(of) for of in (RETURNING + WRITES, WRITES + UPDATES, UPDATES, RETURNING)),
    how=st.sampled_from(["aot_eager"] * 4 + ["export"] * 2 + ["inductor"]),
    dynamic=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def right_when_compiled(program, how, dynamic, dtype):
    def after(function, c, region):
        """Return the result of a function for the program's inputs, the gradients, and the memory that it leaves."""
        memories, inputs = program.inputs(dtype)
        differentiates = not any(statement.call.writes for statement in program.statements)
        if differentiates and how != "export":
            inputs = [x.detach().requires_grad_() for x in inputs]
        result = function(*inputs, c)
        loss = result.sum()
        with region:
            gradients = torch.autograd.grad(loss, inputs, materialize_grads=True) if result.requires_grad else []
        return [result.detach(), *gradients, *memories]

    if how == "export":  # torch fails if written inputs share memory, even for ATen's operators
        program.shared = False
    torch._dynamo.reset()
    try:
        expected = [after(program.run, c, contextlib.nullcontext()) for c in (0.25, -1.5)]
    except RuntimeError as error:
        assert "out must" in str(error) or "share no memory" in str(error), error
        COUNTS["eager mode refuses"] += 1
        return
    if how == "export":

        class Module(torch.nn.Module):
            def forward(self, y, z, c):
                return program.run(y, z, c)

        exported = torch.export.export(Module(), (*program.inputs(dtype)[1], 0.25))
        runs = [exported.module(), exported.run_decompositions().module()]
        got = [after(run, 0.25, contextlib.nullcontext()) for run in runs]
        expected = [expected[0]] * 2
    else:
        compiled = torch.compile(program.run, fullgraph=True, backend=how, dynamic=dynamic or None)
        try:
            # A backward pass computes in the dtype of its forward pass, in any region.
            got = [after(compiled, c, torch.autocast("cpu")) for c in (0.25, -1.5)]
        except torch._dynamo.exc.Unsupported as error:
            assert "non-contiguous `out=`" in str(error), error  # as for ATen's out variants
            COUNTS["Dynamo refuses"] += 1
            return
    for one, other in zip(got, expected, strict=True):
        # To the last bit, except for gradients, which Inductor adds in another order.
        torch.testing.assert_close(one[:1] + one[-2:], other[:1] + other[-2:], rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(one, other)
    COUNTS[f"right by {how}"] += 1
