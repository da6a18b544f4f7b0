"""Importing this module registers the operators' sharding rules for DTensor.

``import muladd_nb`` does not do this, because importing DTensor takes most of a second.
"""

from ._layer.dtensor import register
from ._operators import FORMS

register(FORMS)
