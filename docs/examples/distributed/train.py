"""Train a classifier of handwritten digits on as many processes as there are.

    python train.py                                            # one process
    torchrun --standalone --nproc-per-node 2 train.py          # two: their data are split
    torchrun --standalone --nproc-per-node 2 train.py --tensor-parallel   # two: their features are split

The hidden layer is a modulation, ``mymuladd(features, gain, 1.0)``. Parameters are sharded over the processes, either
by ``fully_shard`` (FSDP2: each process computes its part of the batch with gathered parameters) or by
``parallelize_module`` (tensor parallel: each process computes its part of the features, and ``mymuladd`` works on
DTensors). The model and its data are the same for any number of processes, and so is the result, up to rounding.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import muladd_nb
import muladd_nb.dtensor  # how the operators are sharded


class Modulated(nn.Module):
    """Features of an image, multiplied by gains computed from the same image."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(64, 30)  # 30 features are uneven on 4 processes: that works too
        self.gain = nn.Linear(64, 30)
        self.classes = nn.Linear(30, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(muladd_nb.mymuladd(self.features(x), self.gain(x), 1.0).relu())


def shard_features(model: nn.Module, mesh: DeviceMesh) -> None:
    """Give each process its columns of the hidden layer; the modulation between sees DTensors."""
    columns = ColwiseParallel(use_local_output=False)
    parallelize_module(model, mesh, {"features": columns, "gain": columns, "classes": RowwiseParallel()})


def train(tensor_parallel: bool) -> float:
    """Return the share of the 1,797 digits that the model tells right after 60 steps."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))  # one GPU for each process of this node
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Modulated().to(device)
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32, device=device)
    y = torch.tensor(digits.target, device=device)
    mine = slice(None)
    if tensor_parallel:
        shard_features(model, mesh)
    else:
        fully_shard(model, mesh=mesh)
        mine = slice(dist.get_rank(), None, dist.get_world_size())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    # Gradients are averaged over the processes, so the sum over my part is scaled to be the mean over all of it.
    scale = 1.0 if tensor_parallel else dist.get_world_size() / len(x)
    for _ in range(60):
        optimizer.zero_grad()
        logits = model(x[mine])
        loss = nn.functional.cross_entropy(logits, y[mine], reduction="mean" if tensor_parallel else "sum") * scale
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        predictions = model(x).argmax(1)
    if isinstance(predictions, DTensor):
        predictions = predictions.full_tensor()
    return (predictions == y).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", action="store_true", help="split features, not data")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:  # started without torchrun: a group of one
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    accuracy = train(arguments.tensor_parallel)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes: {accuracy:.1%} of the digits told right")
    dist.barrier()  # none leaves while another still talks to it
    dist.destroy_process_group()
    # DTensor's caches keep the mesh, and that keeps Gloo's threads: one that lets go of a tensor while Python is taken
    # apart ends the process, with "terminate called ...". So leave without that.
    sys.stdout.flush()
    os._exit(0)
