"""Layouts: each function returns a tensor with the elements of `x` and other strides."""

import torch


def contiguous(x):
    return x.contiguous()


def transposed(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def every_other_column(x):
    memory = x.new_empty(*x.shape[:-1], 2 * x.shape[-1])
    view = memory[..., ::2]
    return view.copy_(x)


def row_slice(x):
    memory = x.new_empty(*x.shape[:-1], x.shape[-1] + 3)
    return memory[..., 1:-2].copy_(x)


def every_third_row(x):
    memory = x.new_empty(3 * x.shape[0], *x.shape[1:])
    return memory[::3].copy_(x)


def misaligned(x):
    memory = x.new_empty(x.numel() + 1)
    return memory[1:].view(x.shape).copy_(x)


def permuted(x):
    order = list(range(1, x.dim())) + [0]
    inverse = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(order).contiguous().permute(inverse)


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()


def odd_stride(x):
    return x.as_strided((1, 4), (100, 1))  # the stride of size one matters to no element


ALL = [contiguous, transposed, every_other_column, row_slice, every_third_row, misaligned, permuted, channels_last]
