"""Tensors to tensors: the parts that several papers share."""
