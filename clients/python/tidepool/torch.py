"""PyTorch under Tidepool, in two lines::

    run = tidepool.torch.attach(model, optimizer, checkpoint="digits.pt")
    for epoch in range(run.epoch, 10):
        for images, labels in loader:
            loss = ...; loss.backward(); optimizer.step()
            run.step(loss=loss)

The first line goes on from the checkpoint if there is one. ``step`` reports; while Tidepool asks for
a pause it moves parameters and optimizer state to host memory, stands still, and moves them back; when
devices are to be given back it saves, acknowledges, and ends the script with exit code 0.

With ``torch.distributed`` all ranks call ``step`` after each of their steps: a pause comes to all at
the same step (the server agrees on it), and so does the end (agreed by an all-reduce of one flag every
``agree_every`` steps, on a process group of its own).

PyTorch is imported when something here is called. Written for PyTorch 1.13 and later.
"""
from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from . import _run
from .checkpoint import PathLike, atomic_file


def _torch() -> Any:
    import torch  # the library; this module is tidepool.torch
    return torch


# ---- agreeing --------------------------------------------------------------------------------


class Agreement:
    """One answer for all ranks. Make it on all ranks at the same place: it makes a process group."""

    def __init__(self) -> None:
        distributed = _torch().distributed
        self._together = (distributed.is_available() and distributed.is_initialized()
                          and distributed.get_world_size() > 1)
        self._group = None
        if self._together and distributed.is_gloo_available():
            # On the host: no step of the device waits for it, and it is nobody else's collective.
            self._group = distributed.new_group(backend="gloo")

    def any(self, flag: bool) -> bool:
        """True on all ranks if it is on one. A collective: all ranks call it at the same place."""
        if not self._together:
            return flag
        torch = _torch()
        device = "cpu"
        if self._group is None and torch.distributed.get_backend() == "nccl":
            device = "cuda"
        number = torch.tensor([1 if flag else 0], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX, group=self._group)
        return bool(number.item())


# ---- moving to host memory and back ------------------------------------------------------------


class Offload:
    """The device memory of tensors, moved to host memory and back.

    Whole storages are moved, so tensors that share one (tied weights, flat parameters) still do, and
    no tensor becomes another object. Their addresses on the device may change: CUDA graphs that were
    captured before must be captured again. Tensors on the host stay where they are.
    """

    def __init__(self) -> None:
        self._moved: List[Tuple[Any, Any, int]] = []

    def take(self, tensors: Iterable[Any]) -> int:
        """Frees the device memory of these tensors; returns how many bytes."""
        seen = set()
        for tensor in tensors:
            storage = _storage(tensor)
            address = storage.data_ptr()
            if tensor.device.type == "cpu" or address == 0 or address in seen:
                continue
            seen.add(address)
            size = storage.nbytes()
            host = _host_memory(size, pinned=tensor.device.type == "cuda")
            host.copy_(_storage_tensor(storage), non_blocking=True)
            self._moved.append((storage, host, size))
        _synchronize()
        for storage, _, _ in self._moved:
            storage.resize_(0)
        _empty_cache()
        return sum(size for _, _, size in self._moved)

    def give_back(self) -> None:
        """Moves everything back. What does not fit any more raises as any allocation does, and may
        be tried again."""
        while self._moved:
            storage, host, size = self._moved[-1]
            storage.resize_(size)
            _storage_tensor(storage).copy_(host, non_blocking=True)
            _synchronize()
            self._moved.pop()


def _storage(tensor: Any) -> Any:
    return (tensor.untyped_storage() if hasattr(tensor, "untyped_storage")
            else tensor.storage().untyped())


def _storage_tensor(storage: Any) -> Any:
    """The whole storage as bytes."""
    torch = _torch()
    return torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)


def _host_memory(size: int, pinned: bool) -> Any:
    """Pinned, for a quick copy, as far as the host can give it."""
    torch = _torch()
    if pinned:
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:
            pass
    return torch.empty(size, dtype=torch.uint8)


def _synchronize() -> None:
    torch = _torch()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _empty_cache() -> None:
    torch = _torch()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_tensors(model: Any = None, optimizer: Any = None) -> List[Any]:
    """Parameters, their gradients, buffers, and the tensors of the optimizer's state."""
    tensors: List[Any] = []
    if model is not None:
        for parameter in model.parameters():
            tensors.append(parameter)
            if parameter.grad is not None:
                tensors.append(parameter.grad)
        tensors.extend(model.buffers())
    if optimizer is not None:
        for state in optimizer.state.values():
            tensors.extend(value for value in state.values() if _torch().is_tensor(value))
    return tensors


# ---- checkpoints -------------------------------------------------------------------------------


def save(path: PathLike, step: int, model: Any = None, optimizer: Any = None,
         **more: Any) -> None:
    """Writes the state of model, optimizer and whatever has a ``state_dict`` (or is a plain value)
    to ``path``: whole and on the disk, or not at all. The random numbers' state goes with it."""
    torch = _torch()
    state: Dict[str, Any] = {"step": int(step), "random": torch.get_rng_state(), "more": {}}
    if torch.cuda.is_available():
        state["random_cuda"] = torch.cuda.get_rng_state_all()
    for name, part in (("model", model), ("optimizer", optimizer)):
        if part is not None:
            state[name] = part.state_dict()
    for name, value in more.items():
        state["more"][name] = value.state_dict() if hasattr(value, "state_dict") else value
    with atomic_file(path) as file:
        torch.save(state, file)


def load(path: PathLike, model: Any = None, optimizer: Any = None, **more: Any
         ) -> Optional[Dict[str, Any]]:
    """Reads what :func:`save` wrote into model, optimizer and whatever has ``load_state_dict``.
    Returns ``step`` and the plain values by name; None: there is no such file. A file that is not
    such a checkpoint raises as ``torch.load`` does."""
    torch = _torch()
    if not os.path.exists(path):
        return None
    state = torch.load(path, map_location="cpu")
    for name, part in (("model", model), ("optimizer", optimizer)):
        if part is not None:
            part.load_state_dict(state[name])
    for name, value in more.items():
        if hasattr(value, "load_state_dict") and name in state["more"]:
            value.load_state_dict(state["more"][name])
    torch.set_rng_state(state["random"])
    if "random_cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random_cuda"])
    found = {name: value for name, value in state["more"].items()}
    found["step"] = state["step"]
    return found


# ---- the run -----------------------------------------------------------------------------------


class TorchRun:
    """A run of PyTorch; made by :func:`attach`. ``run`` is the :class:`tidepool.Run` beneath."""

    def __init__(self, run: _run.Run, model: Any = None, optimizer: Any = None,
                 checkpoint: Optional[PathLike] = None, offload: bool = True,
                 agree_every: int = 10, **more: Any) -> None:
        if agree_every < 1:
            raise ValueError("tidepool: agree_every is %r, at least 1" % agree_every)
        self.run, self._model, self._optimizer, self._more = run, model, optimizer, more
        self._checkpoint, self._agree_every = checkpoint, agree_every
        self._agreement: Optional[Agreement] = None
        self._stop = False
        self._offload = Offload()
        self.steps_done, self.epoch = 0, 0
        self.epoch_step = 0  #: steps of ``epoch`` that are done
        self._restore()
        if offload and run.attached:
            run.on_pause(lambda: self._offload.take(device_tensors(model, optimizer)),
                         self._offload.give_back)

    def _restore(self) -> None:
        if self._checkpoint is None:
            return
        found = load(self._checkpoint, self._model, self._optimizer, **self._more)
        if found is not None:
            self.steps_done = found["step"]
            self.epoch, self.epoch_step = found.get("epoch", 0), found.get("epoch_step", 0)
            self.run.report(step=self.steps_done, checkpointed_step=self.steps_done)

    def step(self, **metrics: Any) -> int:
        """The end of an optimizer's step, on every rank. May stand still here; may save and end the
        script (``SystemExit(0)``) when devices are to be given back and there is a checkpoint's
        path. Returns the steps done."""
        self.steps_done += 1
        self.epoch_step += 1
        self.run.step(self.steps_done, **metrics)
        if self._checkpoint is not None and self.should_stop():
            self.save()
            self.run.acknowledge()
            self._leave()
        return self.steps_done

    def _leave(self) -> None:
        distributed = _torch().distributed
        if distributed.is_available() and distributed.is_initialized():
            distributed.barrier()  # rank 0 has saved before anybody ends
        self.run.close()
        raise SystemExit(0)

    def steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The rest of this epoch's batches: those that are done already are passed over, so a shuffle
        must depend on the epoch alone. Measures the time that each step waited for its data. Call
        :meth:`step` at the end of each; the epoch is over when it ends."""
        skip = self.epoch_step
        iterator = iter(loader)
        while True:
            began = time.monotonic()
            try:
                batch = next(iterator)
            except StopIteration:
                break
            if skip > 0:
                skip -= 1
                continue
            self.run.report(waiting_s=time.monotonic() - began)
            yield batch
        self.epoch, self.epoch_step = self.epoch + 1, 0

    def should_stop(self) -> bool:
        """Devices are to be given back: the same answer on all ranks after the same step."""
        if not self.run.attached:
            return False
        if self._agreement is None:
            self._agreement = Agreement()
        if not self._stop and self.steps_done % self._agree_every_now() == 0:
            self._stop = self._agreement.any(self.run.should_stop())
        return self._stop

    def _agree_every_now(self) -> int:
        return self._agree_every if self.run.ranks > 1 else 1

    def save(self) -> None:
        """Writes the checkpoint (rank 0) and reports it. Without a path: nothing."""
        if self._checkpoint is None:
            return
        if self.run.rank == 0:
            save(self._checkpoint, self.steps_done, self._model, self._optimizer,
                 epoch=self.epoch, epoch_step=self.epoch_step, **self._more)
        self.run.report(step=self.steps_done, checkpointed_step=self.steps_done)


def attach(model: Any = None, optimizer: Any = None, checkpoint: Optional[PathLike] = None,
           offload: bool = True, agree_every: int = 10,
           run: Optional[_run.Run] = None, **more: Any) -> TorchRun:
    """A run of PyTorch; outside Tidepool one that only keeps the checkpoint.

    ``checkpoint``: a path; read now if it is there, written by ``save()`` and when devices are to be
    given back. ``offload``: a pause frees device memory. ``agree_every``: steps between two
    all-reduces of the flag that says whether to stop (several ranks only). ``more``: what else
    belongs to the state, for example ``scheduler=scheduler``.
    """
    return TorchRun(run if run is not None else _run.attach(), model, optimizer, checkpoint, offload,
                    agree_every, **more)
