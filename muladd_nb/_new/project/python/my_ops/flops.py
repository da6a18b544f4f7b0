"""Importing this module tells ``torch.utils.flop_counter`` how many floating-point operations each operator takes."""

from ._layer.flops import register
from ._operators import FORMS

register(FORMS)
