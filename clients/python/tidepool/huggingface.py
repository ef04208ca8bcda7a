"""The Hugging Face Trainer under Tidepool, in one line::

    trainer.add_callback(tidepool.huggingface.callback())

Reports each step; stands still when Tidepool asks for it, with parameters and optimizer state in host
memory meanwhile; when devices are to be given back the Trainer saves and stops. Start again with
``trainer.train(resume_from_checkpoint=True)`` where there is a checkpoint.

``transformers`` is imported when :func:`callback` is called. On several ranks the end is agreed by an
all-reduce of one flag every ``agree_every`` steps.
"""
from __future__ import annotations

from typing import Any, Optional

from . import _run
from .torch import Agreement, Offload, device_tensors


def callback(run: Optional[_run.Run] = None, agree_every: int = 10, base: Any = None) -> Any:
    """A ``TrainerCallback``. ``base``: the class to stand on (default: transformers' own)."""
    if base is None:
        from transformers import TrainerCallback
        base = TrainerCallback
    return type("TidepoolCallback", (_Callback, base), {})(
        run if run is not None else _run.attach(), agree_every)


class _Callback:
    def __init__(self, run: _run.Run, agree_every: int) -> None:
        self._run, self._agree_every = run, agree_every
        self._agreement: Optional[Agreement] = None
        self._offload = Offload()
        self._stopping = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None,
                       optimizer: Any = None, **_: Any) -> None:
        if not self._run.attached:
            return
        self._agreement = Agreement()  # on all ranks
        self._run.report(step=state.global_step)
        self._run.on_pause(lambda: self._offload.take(device_tensors(model, optimizer)),
                           self._offload.give_back)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self._agreement is None:
            return control
        self._run.step(state.global_step, **_last_numbers(state))
        every = self._agree_every if self._run.ranks > 1 else 1
        if state.global_step % every == 0 and self._agreement.any(self._run.should_stop()):
            self._stopping = True
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.report(step=state.global_step, checkpointed_step=state.global_step)
        if self._stopping:
            self._run.acknowledge()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.flush()


def _last_numbers(state: Any) -> dict:
    history = getattr(state, "log_history", None) or [{}]
    return {name: value for name, value in history[-1].items()
            if name in ("loss", "learning_rate", "grad_norm")}
