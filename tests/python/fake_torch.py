"""As much of PyTorch as tidepool.torch uses, over plain bytes: storages that tensors may share and
that have a device with a bound on its memory. It is no proof that PyTorch behaves like this; its
documentation is."""
import pickle
import types

uint8, int32 = "uint8", "int32"


class Device:
    def __init__(self, kind):
        self.type = kind


class Storage:
    used = 0  # bytes on the accelerator
    limit = 10 ** 9

    def __init__(self, data, kind):
        self.data, self.device = bytearray(), Device(kind)
        self.resize_(len(data))
        self.data[:] = data

    def data_ptr(self):
        return id(self) if self.data else 0

    def nbytes(self):
        return len(self.data)

    def resize_(self, size):
        if self.device.type != "cpu":
            if Storage.used + size - len(self.data) > Storage.limit:
                raise RuntimeError("out of memory")
            Storage.used += size - len(self.data)
        self.data = bytearray(size)


class Tensor:
    def __init__(self, storage, numbers=None):
        self.storage_, self.numbers = storage, numbers
        self.grad = None

    @property
    def device(self):
        return self.storage_.device

    def untyped_storage(self):
        return self.storage_

    def set_(self, storage):
        self.storage_ = storage
        return self

    def copy_(self, other, non_blocking=False):
        assert len(self.storage_.data) == len(other.storage_.data)
        self.storage_.data[:] = other.storage_.data
        return self

    def item(self):
        return self.numbers[0]


def tensor(numbers, dtype=None, device="cpu"):
    kind = device.type if isinstance(device, Device) else device
    return Tensor(Storage(b"", kind), list(numbers))


def empty(size, dtype=None, pin_memory=False):
    if pin_memory and size > cuda.pinned_max:
        raise RuntimeError("cannot pin")
    return Tensor(Storage(bytes(size), "cpu"))


def on_device(data, kind="cuda"):
    return Tensor(Storage(data, kind))


def is_tensor(value):
    return isinstance(value, Tensor)


def get_rng_state():
    return [random_state[0]]


def set_rng_state(state):
    random_state[0] = state[0]


random_state = [0]
cuda = types.SimpleNamespace(is_available=lambda: False, synchronize=lambda: None,
                             empty_cache=lambda: None, pinned_max=10 ** 9)


def save(state, file):
    pickle.dump(state, file)


def load(path, map_location=None):
    with open(path, "rb") as file:
        return pickle.load(file)


class Distributed:
    """One rank of several; what the others say to an all-reduce is played."""

    class ReduceOp:
        MAX = "max"

    def __init__(self, world=1, backend="gloo"):
        self.world, self.backend, self.others = world, backend, 0
        self.calls, self.barriers, self.groups = 0, 0, []

    def is_available(self):
        return True

    def is_initialized(self):
        return self.world > 1

    def is_gloo_available(self):
        return self.backend != "nccl only"

    def get_world_size(self):
        return self.world

    def get_backend(self):
        return "nccl" if self.backend.startswith("nccl") else self.backend

    def new_group(self, backend):
        self.groups.append(backend)
        return "group of %s" % backend

    def all_reduce(self, number, op, group):
        assert op == "max"
        self.calls += 1
        self.last_group, self.last_device = group, number.device.type
        number.numbers[0] = max(number.numbers[0], self.others)

    def barrier(self):
        self.barriers += 1


distributed = Distributed()


class Module:
    """Two tied parameters with gradients, and a buffer."""

    def __init__(self):
        first = on_device(b"weights!")
        self.tensors = [first, Tensor(first.storage_), on_device(b"more")]
        self.tensors[0].grad = on_device(b"gradient")
        self.host = on_device(b"on host", "cpu")
        self.state = 1

    def parameters(self):
        return iter(self.tensors)

    def buffers(self):
        return iter([self.host])

    def state_dict(self):
        return {"state": self.state}

    def load_state_dict(self, state):
        self.state = state["state"]


class Optimizer:
    def __init__(self):
        self.state = {"p": {"momentum": on_device(b"momentum"), "step": 5}}
        self.rate = 0.1

    def state_dict(self):
        return {"rate": self.rate}

    def load_state_dict(self, state):
        self.rate = state["rate"]
