"""A CUDA device on a machine without one: its tensors lie in memory of the CPU and carry a mark.

Each operation is computed on the CPU. As on CUDA, one of tensors of both devices is an error, and so is
reading a tensor of CUDA as an array. Gradients made by autograd have no mark and are not checked.
"""

import types
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
GETTERS = {
    Tensor.device.__get__: lambda device: device,
    Tensor.is_cuda.__get__: lambda device: device == CUDA,
    Tensor.is_cpu.__get__: lambda device: device == CPU,
}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put, torch.index_put}
ACROSS = {Tensor.copy_, Tensor.data.__set__, Tensor.type_as, torch._has_compatible_shallow_copy_type}
NO_ARRAYS = {Tensor.numpy, Tensor.__array__}


PRODUCTS = {
    torch.nn.functional.linear,
    torch.nn.functional.scaled_dot_product_attention,
    *(torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.__matmul__, Tensor.mm),
}


class VirtualCuda(TorchFunctionMode):
    """Within it ``cuda`` is a device; ``rounding`` last digits are random in its products."""

    def __init__(self, rounding=0.0):
        super().__init__()
        self.rounding, self.generator = rounding, torch.Generator().manual_seed(0)

    def rounded(self, product):
        """A product as of sums in another order; so is its gradient."""
        with torch._C.DisableTorchFunction():
            noise = torch.rand(product.shape, generator=self.generator, dtype=torch.float32) - 0.5
            # a factor in bfloat16 would be 1: the product is rounded, its factor is not
            noisy = product.float() * (1 + self.rounding * torch.finfo(product.dtype).eps * noise)
            return noisy.to(product.dtype)

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: C901 - one case per kind
        kwargs = dict(kwargs or {})
        if func in GETTERS:
            return GETTERS[func](device_of(args[0]) or CPU)
        if func in NO_ARRAYS and device_of(args[0]) == CUDA:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if func in (Tensor.cpu, Tensor.cuda):
            return moved(args[0], CPU if func is Tensor.cpu else CUDA)
        if func is Tensor.to:
            return to(*args, **kwargs)
        if func is Tensor.pin_memory:
            return args[0]
        target = None
        if kwargs.get("device") is not None:
            target, kwargs["device"] = torch.device(kwargs["device"]), "cpu"
            if target.type not in ("cpu", "cuda"):
                kwargs["device"] = target
                return func(*args, **kwargs)
            target = CUDA if target.type == "cuda" else CPU
        found = devices(func, args, kwargs)
        out = func(*args, **kwargs)
        device = target or (CUDA if CUDA in found else CPU if CPU in found else None)
        if self.rounding and device == CUDA and func in PRODUCTS:
            out = self.rounded(out)
        if device is None and not any(isinstance(each, Tensor) for each in tree_leaves((args, kwargs))):
            device = CPU  # a new tensor
        for each in tree_leaves(out):
            if isinstance(each, Tensor) and device_of(each) is None and device is not None:
                mark(each, device)
        return out


def devices(func, args, kwargs):
    """The devices of the arguments with a dimension; raise if they do not go together."""
    if func in ACROSS or func is Tensor.grad.__get__:
        return {device_of(args[0])}
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if func in INDEXING:
        base = device_of(args[0])
        rest = [each for each in tensors if each is not args[0]]
        values = [args[2]] if func is Tensor.__setitem__ and isinstance(args[2], Tensor) else []
        for each in rest:
            is_value = any(each is value for value in values)
            wrong = {CUDA, CPU} == {base, device_of(each)} and (each.dim() or not is_value)
            if wrong and (base == CPU or is_value):
                raise RuntimeError(f"{name_of(func)}: {base} and {device_of(each)}")
        return {base}
    found = {device_of(each) for each in tensors if each.dim()}
    if {CPU, CUDA} <= found:
        shapes = [(tuple(each.shape), str(device_of(each))) for each in tensors]
        raise RuntimeError(f"{name_of(func)}: Expected all tensors to be on the same device: {shapes}")
    return found or {device_of(each) for each in tensors}


def name_of(func):
    return getattr(func, "__qualname__", None) or getattr(func, "__name__", str(func))


def device_of(tensor):
    """The marked device of a tensor; None without a mark."""
    with torch._C.DisableTorchFunction():
        if tensor.device.type != "cpu":
            return tensor.device
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        return getattr(tensor.untyped_storage(), "virtual_device", None)


def mark(tensor, device):
    with torch._C.DisableTorchFunction():
        if tensor.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor.untyped_storage().virtual_device = device
    return tensor


def moved(tensor, device, copy=False):
    """The tensor on a device; the same one if it is there."""
    if not copy and (device_of(tensor) or CPU) == device:
        return mark(tensor, device)
    return mark(tensor.clone(), device)


def to(tensor, *args, **kwargs):
    """``Tensor.to`` in all its forms."""
    copy, device, rest = kwargs.pop("copy", False), None, []
    for each in (*args, kwargs.pop("device", None), kwargs.pop("other", None)):
        if isinstance(each, Tensor):
            device, rest = device_of(each) or CPU, [*rest, each.dtype]
        elif isinstance(each, torch.dtype):
            rest.append(each)
        elif isinstance(each, (str, torch.device, int)) and not isinstance(each, bool):
            device = torch.device(each)
    dtype = kwargs.pop("dtype", None) or next((each for each in rest if each is not None), None)
    before = device_of(tensor)
    if device is not None and device.type not in ("cpu", "cuda"):
        return tensor.to(device)
    with torch._C.DisableTorchFunction():
        cast = tensor if dtype is None else tensor.to(dtype)
    if before is not None:
        mark(cast, before)
    device = (before or CPU) if device is None else CUDA if device.type == "cuda" else CPU
    return moved(cast, device, copy)


class Autocast(torch.autocast):
    """Autocast of any device; on a CPU it converts other operations than on CUDA."""

    def __init__(self, device_type, dtype=None, enabled=True):
        super().__init__("cpu", dtype, enabled)


def dense_tree(tree, device):
    """Attention along a tree, by a table of who sees whom: FlexAttention has no gradients on a CPU."""
    ends_L, index_L = tree.ends_L.to(device), torch.arange(len(tree.ends_L), device=device)
    sees_LL = (index_L <= index_L[:, None]) & (index_L[:, None] < ends_L)
    return lambda _, q, k, v, scale: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=sees_LL, scale=scale, enable_gqa=True
    )


class Generator(torch.Generator):
    """A generator of any device."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")


def float32_or(product):
    """A product that may be asked for float32 of bfloat16, which only CUDA has."""

    def multiply(one, other, out_dtype=None, **options):
        if out_dtype is None:
            return product(one, other, **options)
        assert {one.dtype, other.dtype} == {torch.bfloat16}
        return product(one.to(out_dtype), other.to(out_dtype), **options)

    return multiply


@contextmanager
def virtual_cuda(rounding=0.0):
    """Within the block torch has a CUDA device, whose products round at random."""
    nothing = types.SimpleNamespace(wait_stream=lambda other: None)
    free = (8_000_000_000, 16_000_000_000)
    fakes = {
        "is_available": lambda: True,
        "synchronize": lambda *_: None,
        "memory_allocated": lambda *_: 1_000_000_000,
        "memory_reserved": lambda *_: 2_000_000_000,
        "max_memory_allocated": lambda *_: 1_500_000_000,
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: free,
        "current_stream": lambda *_: nothing,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }
    is_on, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    with (
        patch.multiple("torch.cuda", **fakes),
        patch("torch.autocast", Autocast),
        patch("torch.is_autocast_enabled", lambda device=None: is_on("cpu")),
        patch("torch.get_autocast_dtype", lambda device: dtype_of("cpu")),
        patch("truing.models.forward.tree_attention.flex_attention", dense_tree),
        patch("truing.engines.local.cuda_graphs.captures", lambda model: False),
        patch("torch.Generator", Generator),
        patch("torch.mm", float32_or(torch.mm)),
        patch("torch.bmm", float32_or(torch.bmm)),
        VirtualCuda(rounding),
    ):
        yield
