"""Lightning under Tidepool, in one line::

    trainer = lightning.Trainer(callbacks=[tidepool.lightning.callback("run.ckpt")])
    trainer.fit(model, ckpt_path="run.ckpt" if os.path.exists("run.ckpt") else None)

Reports each optimizer step; stands still when Tidepool asks for it, with parameters and optimizer state
in host memory meanwhile; when devices are to be given back it saves ``run.ckpt`` and stops.

``lightning`` (or ``pytorch_lightning``) is imported when :func:`callback` is called. On several ranks
the end is agreed by an all-reduce of one flag every ``agree_every`` batches.
"""
from __future__ import annotations

import os
from typing import Any, List, Optional

from . import _run
from .checkpoint import PathLike
from .torch import Agreement, Offload, device_tensors


def callback(checkpoint: PathLike, run: Optional[_run.Run] = None, agree_every: int = 10,
             base: Any = None) -> Any:
    """A ``Callback``. ``base``: the class to stand on (default: Lightning's own)."""
    if base is None:
        base = _library_base()
    return type("TidepoolCallback", (_Callback, base), {})(
        os.fspath(checkpoint), run if run is not None else _run.attach(), agree_every)


def _library_base() -> Any:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    return Callback


class _Callback:
    def __init__(self, checkpoint: str, run: _run.Run, agree_every: int) -> None:
        self._checkpoint, self._run, self._agree_every = checkpoint, run, agree_every
        self._agreement: Optional[Agreement] = None
        self._offload = Offload()
        self._batches = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._run.attached:
            return
        self._agreement = Agreement()  # on all ranks
        self._run.report(step=trainer.global_step)
        self._run.on_pause(lambda: self._offload.take(_tensors(trainer, pl_module)),
                           self._offload.give_back)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        if self._agreement is None:
            return
        self._run.step(trainer.global_step)
        self._batches += 1
        every = self._agree_every if self._run.ranks > 1 else 1
        if self._batches % every == 0 and self._agreement.any(self._run.should_stop()):
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        temporary = self._checkpoint + ".new"
        trainer.save_checkpoint(temporary)  # on all ranks; rank 0 writes
        if self._run.rank == 0:
            _take_place(temporary, self._checkpoint)
        self._run.report(step=trainer.global_step, checkpointed_step=trainer.global_step)
        self._run.acknowledge()
        trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._run.flush()


def _take_place(temporary: str, path: str) -> None:
    """On the disk first; then under its name. A sharded checkpoint is a folder: its files are the
    strategy's to sync."""
    if os.path.isfile(temporary):
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    os.replace(temporary, path)


def _tensors(trainer: Any, module: Any) -> List[Any]:
    tensors = device_tensors(module)
    for optimizer in trainer.optimizers:
        tensors.extend(device_tensors(None, optimizer))
    return tensors
