"""PyTorch's tools around an operator: counting, checkpointing, data workers, pickling, meta and deterministic mode."""

import copy
import pickle

import pytest
import torch
from modes import DispatchMode
from rows import Rows
from torch.package import PackageExporter, PackageImporter
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

import muladd_nb.flops

ops = torch.ops.muladd_nb


class Modulation(torch.nn.Module):
    """Computes y = x * (w x) + 0.5."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Linear(4, 4)

    def forward(self, x):
        return muladd_nb.mymuladd(x, self.gain(x), 0.5)


def flops(function):
    with FlopCounterMode(display=False) as mode:
        function()
    return mode.get_total_flops()


def test_flops(device):
    a, b, out = (torch.randn(3, 4, device=device) for _ in range(3))
    assert flops(lambda: ops.mymuladd(a, b, 0.5)) == 24
    assert flops(lambda: muladd_nb.mymuladd(a, b, 0.5, out=out)) == 24
    assert flops(lambda: ops.mymuladd.out(a, b, 0.5, out=out)) == 24
    assert flops(lambda: muladd_nb.mymuladd(a, b, b)) == 24
    assert flops(lambda: muladd_nb.mymuladd(a[0], b, b[:, :1])) == 24  # of the result's elements
    assert flops(lambda: muladd_nb.mymul(a, b)) == 12
    assert flops(lambda: ops.myadd_out(a, b, out)) == 12
    a.requires_grad_()
    assert flops(lambda: muladd_nb.mymuladd(a, b, 0.5).sum().backward()) == 24 + 12
    jagged = torch.nested.nested_tensor([a[0].detach(), b[0, :2]], layout=torch.jagged)
    assert flops(lambda: muladd_nb.mymuladd(jagged, jagged, 0.5)) == 2 * 6


@pytest.mark.parametrize(("policy", "times"), [(CheckpointPolicy.MUST_SAVE, 1), (CheckpointPolicy.PREFER_RECOMPUTE, 2)])
def test_selective_checkpoint(device, policy, times):
    model, x = Modulation().to(device), torch.randn(3, 4, device=device, requires_grad=True)
    expected = torch.autograd.grad(model(x).sin().sum(), x)

    def contexts():
        return create_selective_checkpoint_contexts(
            lambda _, op, *args, **kwargs: policy if op is ops.mymuladd.default else CheckpointPolicy.PREFER_RECOMPUTE
        )

    with DispatchMode() as mode:
        y = checkpoint(lambda x: model(x).sin(), x, use_reentrant=False, context_fn=contexts)
        result = torch.autograd.grad(y.sum(), x)
    assert torch.equal(result[0], expected[0])
    assert mode.seen.count(ops.mymuladd.default) == times


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_data_workers(start):
    Rows()[0]  # starts the parent's threads
    workers = {"fork": 2, "spawn": 1}[start]  # a spawned worker imports torch
    loader = DataLoader(Rows(), batch_size=2, num_workers=workers, multiprocessing_context=start, timeout=120)
    assert torch.cat([batch[:, 0] for batch in loader]).tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


def test_models_are_copied_and_pickled(device, tmp_path):
    model, x = Modulation().to(device), torch.randn(3, 4, device=device)
    expected = model(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
    torch.save(model, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(x), expected)


def test_models_are_in_a_torch_package_that_leaves_the_compiled_package_outside(tmp_path, monkeypatch):
    (tmp_path / "packaged.py").write_text(
        "import muladd_nb\nclass Model:\n    def __call__(self, x):\n        return muladd_nb.mymuladd(x, x, 0.5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import packaged

    with PackageExporter(tmp_path / "model.pt") as exporter:
        exporter.intern("packaged")
        exporter.extern("muladd_nb.**")
        exporter.save_pickle("model", "model.pkl", packaged.Model())
    model, x = PackageImporter(tmp_path / "model.pt").load_pickle("model", "model.pkl"), torch.rand(4)
    assert torch.equal(model(x), muladd_nb.mymuladd(x, x, 0.5))


def test_the_default_device_may_be_meta():
    with torch.device("meta"):
        model, x = Modulation(), torch.randn(3, 4)
        y = model(x)
        muladd_nb.mymuladd(x, x, 0.5, out=y.detach())
    assert y.device.type == "meta"
    assert y.shape == (3, 4)


@pytest.mark.skipif(
    torch.__version__ < "2.11", reason="torch 2.10 puts a float input of a compiled program on the default device"
)
def test_a_compiled_c_is_on_the_cpu_whatever_the_default_device():
    compiled = torch.compile(lambda a, c: muladd_nb.mymuladd(a, a, c), fullgraph=True, backend="aot_eager")
    with torch.device("meta"):
        a = torch.randn(3, device="cpu")
        for c in (0.5, 0.6):
            assert torch.equal(compiled(a, c), muladd_nb.mymuladd(a, a, c))


def test_deterministic_mode(device):
    a, b = torch.randn(1 << 17, device=device), torch.randn(1 << 17, device=device)
    expected = muladd_nb.mymuladd(a, b, 0.5)
    torch.use_deterministic_algorithms(True)
    try:
        assert all(torch.equal(muladd_nb.mymuladd(a, b, 0.5), expected) for _ in range(3))
    finally:
        torch.use_deterministic_algorithms(False)
