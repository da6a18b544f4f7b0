"""Floating point operations: importing this module tells ``torch.utils.flop_counter`` how many each operator takes.

It is not a part of ``import muladd_nb``, because torch's counter imports Triton, or warns that there is none.
"""

from ._layer.flops import register
from ._operators import FORMS

register(FORMS)
