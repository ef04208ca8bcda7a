"""Your training script under Tidepool, in one line::

    import tidepool

    run = tidepool.attach()                       # a silent no-op outside Tidepool
    for batch in run.steps(loader):               # reports each step, stands still when asked to
        train(batch)
        if run.should_stop():                     # devices are to be given back: save, and go
            with tidepool.atomic_file("model.pt") as file:
                save(file)
            run.acknowledge()
            break

``tidepool.torch``, ``tidepool.huggingface`` and ``tidepool.lightning`` do this for PyTorch, for the
Hugging Face Trainer and for Lightning; each imports its library only when it is used.

Threads: ``attach()`` starts one daemon thread. All methods of :class:`Run` may be called from any
thread; those that mark a step from the training thread only.
Errors: nothing here raises because Tidepool is not there, has gone or starts again. Wrong arguments
raise ``ValueError`` or ``TypeError``, as anywhere.
Units: seconds for all times; a *step* is the number of steps that are done.
"""
from ._notice import Notice
from ._run import Run, attach
from .checkpoint import atomic_file, write_atomic

__all__ = ["Notice", "Run", "atomic_file", "attach", "write_atomic"]
__version__ = "0.1.0"
