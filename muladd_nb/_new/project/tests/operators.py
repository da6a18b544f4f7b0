"""What each operator computes, and arguments to try it with: all that differs between the tests of two operators."""

import torch

import my_ops
from cases import Case

OPERATORS: list[Case] = []
