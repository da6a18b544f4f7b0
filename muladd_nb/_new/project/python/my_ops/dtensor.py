"""The operators on DTensors. Importing this module registers how they are sharded, and takes most of a second."""

from ._layer.dtensor import register
from ._operators import FORMS

register(FORMS)
