"""The operators on DTensors: importing this module, which takes most of a second, registers how they are sharded."""

from ._layer.dtensor import register
from ._operators import FORMS

register(FORMS)
