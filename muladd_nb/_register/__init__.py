"""What Python adds to the operators defined in C++: one subsystem of PyTorch, one file.

Importing this package makes the registrations.
"""

from . import autocast, autograd, fake, flops, mutation, negative, nested, unsupported, vmap

__all__ = ["autocast", "autograd", "fake", "flops", "mutation", "negative", "nested", "unsupported", "vmap"]
