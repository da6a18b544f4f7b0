"""The operators on DTensors: importing this module registers how each of them is sharded.

It is not a part of ``import muladd_nb``, because importing DTensor takes most of a second.
"""

from ._layer.dtensor import register
from ._operators import FORMS

register(FORMS)
