"""The cases of the tests: what each operator computes, and which arguments it is tested with."""

import torch

import my_ops
from cases import Case

OPERATORS: list[Case] = []
