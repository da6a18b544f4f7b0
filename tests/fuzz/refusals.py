"""Calls with wrong arguments raise one error, the same for fake tensors, and write nothing."""

import re
from collections import Counter

import torch
from calls import CALLS, MOST
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

COUNTS = Counter()
WRONG = {
    "None": lambda: None,
    "a number": lambda: 1.5,
    "a string": lambda: "a",
    "a list": lambda: [1.0],
    "broadcast": lambda: torch.zeros(3),
    "a scalar": lambda: torch.zeros(()),
    "one element": lambda: torch.zeros(1, 1),
    "other shape": lambda: torch.zeros(3, 2),
    "more dimensions": lambda: torch.zeros(1, 2, 3),
    "float64": lambda: torch.zeros(2, 3, dtype=torch.float64),
    "int32": lambda: torch.zeros(2, 3, dtype=torch.int32),
    "bool": lambda: torch.zeros(2, 3, dtype=torch.bool),
    "complex": lambda: torch.zeros(2, 3, dtype=torch.complex64),
    "float8": lambda: torch.zeros(2, 3, dtype=torch.float8_e5m2),
    "uint16": lambda: torch.zeros(2, 3, dtype=torch.uint16),
    "sparse": lambda: torch.zeros(2, 3).to_sparse(),
    "sparse rows": lambda: torch.zeros(2, 3).to_sparse_csr(),
    "mkldnn": lambda: torch.zeros(2, 3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint8),
    "meta": lambda: torch.zeros(2, 3, device="meta"),
    "no storage": lambda: cut(torch.zeros(2, 3)),
    "expanded": lambda: torch.zeros(1, 1).expand(2, 3),
}
FAKE = ("None", "broadcast", "a scalar", "one element", "other shape", "more dimensions", "float64", "int32", "bool",
        "complex", "float8", "uint16", "meta")  # fmt: skip
MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]


def cut(x):
    x.untyped_storage().resize_(0)
    return x


@given(
    call=st.sampled_from(CALLS),
    wrong=st.dictionaries(st.integers(0, MOST), st.sampled_from(list(WRONG)), max_size=2),
    mode=st.sampled_from(MODES),
)
def refused_in_one_sentence(call, wrong, mode):
    places = len(call.names) + call.writes
    wrong = {place: kind for place, kind in wrong.items() if place < places}
    if call.writes and call.is_public and wrong.get(places - 1) == "None":
        del wrong[places - 1]  # an `out` of None is right: the call returns a new tensor

    def tensors():
        return [WRONG[wrong[place]]() if place in wrong else torch.ones(2, 3) for place in range(places)]

    def run(x):
        with mode():
            return call(*x[: len(call.names)], out=x[-1])

    x = tensors()
    before = [y._version if isinstance(y, torch.Tensor) else None for y in x]
    try:
        run(x)
    except (RuntimeError, TypeError) as error:
        sentence = str(error).splitlines()[0]
    else:
        # These are not always wrong: an expanded input, a Python number for c, a dtype that autocast casts.
        possible = {"expanded", "float64", "a number", "one element", "a scalar"}
        cast = {"complex", "int32", "bool", "float8", "uint16"} if mode is MODES[-1] else set()
        if call.form.broadcasts:
            shape = torch.broadcast_shapes(*(y.shape for y in x[: len(call.names)] if isinstance(y, torch.Tensor)))
            if not (call.writes and x[-1] is not None and x[-1].shape != shape):
                possible |= {"broadcast", "more dimensions"}
        alike = len(set(wrong.values())) == 1 and len(wrong) == places
        assert alike or set(wrong.values()) <= possible | cast, f"{wrong} is taken"
        COUNTS["right"] += 1
        return
    assert wrong, f"refused, though nothing is wrong: {sentence}"
    of_ours = re.match(r"my\w+(\.\w+)?: \w+,? ", sentence)
    of_the_schema = re.search(
        r"muladd_nb::my|match any schema|Expected a value of type|no tensor arguments|QuantizedMeta", sentence
    )
    assert of_ours or of_the_schema, f"no sentence of ours: {sentence}"
    assert before == [y._version if isinstance(y, torch.Tensor) else None for y in x], "a refused write is counted"
    assert all((y == 1).all() for place, y in enumerate(x) if place not in wrong), "something was written"
    COUNTS["refused"] += 1

    # If Python makes the checks, it reports an `out` of None first.
    if (
        of_ours
        and wrong.get(places - 1) != "None"
        and set(wrong.values()) <= set(FAKE)
        and "must be on the same device" not in sentence
    ):
        with FakeTensorMode() as fake_mode:
            fake = [fake_mode.from_tensor(y) if isinstance(y, torch.Tensor) else y for y in tensors()]
            try:
                run(fake)
                said = "nothing"
            except (RuntimeError, TypeError) as error:
                said = str(error).splitlines()[0]
        assert said == sentence, f"fake tensors say {said!r}, real ones {sentence!r}"
        COUNTS["refused alike as fake tensors"] += 1
