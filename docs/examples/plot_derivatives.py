"""
A Jacobian and a Hessian
========================

A string of masses between springs that stiffen as they are stretched. Its energy is a sum of element-wise terms.
The gradient is the force on each mass, and the Hessian says how the forces change with the places. ``torch.func``
computes both through :func:`muladd_nb.mymuladd`, in every mode and nesting.
"""

import matplotlib.pyplot as plt
import torch
from torch.func import hessian, jacfwd, jacrev, vmap

import muladd_nb

# %%
# The energy of a spring that is stretched by ``s`` is ``s**2 / 2 + s**4``, which is ``s**2 * (s**2 + 0.5)``:

torch.manual_seed(0)
n = 24
places = (torch.linspace(0, 3, n) + 0.1 * torch.randn(n)).double()
end = torch.zeros(1, dtype=torch.float64)


def energy(x):
    """Return the energy of the string, whose ends are held at 0 and 3."""
    stretch = torch.cat([x, end + 3]) - torch.cat([end, x])
    square = muladd_nb.mymul(stretch, stretch)
    return muladd_nb.mymul(square, muladd_nb.mymuladd(stretch, stretch, 0.5)).sum()


# %%
# The Hessian is a Jacobian of a Jacobian: forward over reverse, as ``hessian`` has it, and the other way round.

H = hessian(energy)(places)
other = jacrev(jacfwd(energy))(places)
print("reverse over forward is the same:", torch.allclose(other, H))
print("a neighbour pulls at a neighbour alone:", not H.triu(2).any())

# %%
# The Jacobian of one step of Newton's method: how the new places depend on the old ones.


def step(x):
    """Return where Newton's method goes from ``x``."""
    return x - torch.linalg.solve(hessian(energy)(x), jacrev(energy)(x))


J = jacfwd(step)(places)
paths = [places]
for _ in range(6):
    paths.append(step(paths[-1]))
forces = vmap(jacrev(energy))(torch.stack(paths)).abs().amax(1)
for i, force in enumerate(forces):
    print(f"step {i}: the largest force is {force:.1e}")

# %%
# The Hessian has three diagonals. The Jacobian of the step is full, because through it every mass affects every other.

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
titles = ("the Hessian of the energy", "the Jacobian of a step")
for ax, matrix, title in zip(axes, (H, J), titles, strict=False):
    most = matrix.abs().max()
    image = ax.imshow(matrix, cmap="coolwarm", vmin=-most, vmax=most)
    figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set(title=title, xticks=[], yticks=[])
axes[2].semilogy(forces, "o-")
axes[2].set(title="the largest force", xlabel="step")
figure.suptitle("derivatives of derivatives find the rest position in a few steps")
plt.show()
