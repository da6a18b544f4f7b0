"""What Python adds to the operators defined in C++: one subsystem of PyTorch, one file.

Importing this package makes the registrations.
"""

from . import autograd, fake, mutation, vmap

__all__ = ["autograd", "fake", "mutation", "vmap"]
