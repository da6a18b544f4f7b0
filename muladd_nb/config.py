"""Settings. Assign to them, as to those of ``torch.backends``; they are read whenever they are needed."""

fuse_when_compiling: bool = False
"""Let ``torch.compile`` and ``torch.export`` see ``a * b + c`` where they trace the public functions.

Inductor then fuses :func:`muladd_nb.mymuladd` and :func:`muladd_nb.mymul` with their element-wise neighbours, as it
cannot fuse an operator it knows nothing about: faster, but rounded as the compiler rounds, no longer once. A call with
``out=`` and one of ``torch.ops.muladd_nb`` stay what they are.
"""
