"""Importing this module tells ``torch.utils.flop_counter`` how many floating point operations each operator does.

``import muladd_nb`` does not do this, because torch's counter imports Triton, or warns that there is none.
"""

from ._layer.flops import register
from ._operators import FORMS

register(FORMS)
