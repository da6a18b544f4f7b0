"""The public functions as Python functions: signatures, docstrings, pickling and other tools."""

import inspect
import pickle
import threading

import pytest
import torch

import muladd_nb
from muladd_nb._layer.public import public
from muladd_nb._operators import FORMS

every_function = pytest.mark.parametrize("name", muladd_nb.ops.__all__)


@every_function
def test_it_is_what_it_says(name):
    function = getattr(muladd_nb, name)
    assert function is getattr(muladd_nb.ops, name) is pickle.loads(pickle.dumps(function))
    assert (function.__name__, function.__module__) == (name, "muladd_nb.ops")
    assert inspect.getsource(function).count(inspect.getdoc(function).splitlines()[0]) == 1


@every_function
def test_its_arguments_have_the_names_of_its_signature(name, device):
    function = getattr(muladd_nb, name)
    parameters = inspect.signature(function).parameters
    given = {x: 2.0 if x == "c" else torch.ones(3, device=device) for x in parameters}
    result = function(**given)
    assert result is (None if parameters["out"].default is inspect.Parameter.empty else given["out"])
    assert given["out"].tolist() == 3 * [{"mymuladd": 3.0, "mymul": 1.0, "myadd_out": 2.0}[name]]
    with pytest.raises(TypeError, match=rf"{name}\(\) missing 1 required positional argument: 'a'"):
        function(**{x: value for x, value in given.items() if x != "a"})


@every_function
def test_arguments_come_by_position_or_by_name_and_once(name):
    function = getattr(muladd_nb, name)
    parameters = inspect.signature(function).parameters
    given = {x: 2.0 if x == "c" else torch.ones(3) for x in parameters}
    inputs = [x for x in given.values() if x is not given["out"]]
    function(*inputs, out=given["out"])
    for wrong, message in (
        (lambda: function(*inputs, given["out"], given["out"]), "positional argument"),
        (lambda: function(*inputs, out=given["out"], a=inputs[0]), "multiple values for argument 'a'"),
        (lambda: function(*inputs, out=given["out"], d=1.0), "unexpected keyword argument 'd'"),
    ):
        for call in (wrong, torch.compile(wrong, backend="eager")):
            with pytest.raises(TypeError, match=rf"{name}\(\) .*{message}"):
                call()


def test_a_function_has_out_where_its_operator_writes():
    functional = [form for form in FORMS if form.kind == "functional"]

    def mymul(a, b, *, out=None):
        """Return a product."""

    sentence = r"mymul: out needs a form of mymul\(Tensor a, Tensor b\) that writes, but its entry has none"
    with pytest.raises(ValueError, match=sentence):
        public(functional)(mymul)

    def myadd_out(a, b, out=None):
        """Write a sum."""

    sentence = r"myadd_out: myadd\(Tensor a, Tensor b\) only writes, so out must not have a default"
    with pytest.raises(ValueError, match=sentence):
        public(FORMS)(myadd_out)


def test_a_function_of_no_operator_is_refused():
    def mymulsub(a, b):
        """Return something that no operator computes."""

    with pytest.raises(ValueError, match=r"mymulsub: there is no operator of this name, only \['myadd_out', 'mymul"):
        public(FORMS)(mymulsub)


def test_a_tensor_is_kept_while_it_is_read():
    """While the kernel reads a tensor, torch does not let another thread replace it in its object, as with ATen."""
    a, b, other = (torch.ones(1 << 22) for _ in range(3))
    refused = threading.Event()

    def compute():
        for _ in range(1000):
            if not refused.is_set():
                muladd_nb.mymul(a, b)

    def swap():
        try:
            torch.utils.swap_tensors(a, other)
        except RuntimeError:
            refused.set()

    thread = threading.Thread(target=compute)
    thread.start()
    while thread.is_alive():
        swap()
    assert refused.is_set()
