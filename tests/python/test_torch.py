"""tidepool.torch, .huggingface and .lightning over a played PyTorch: what is moved, saved, agreed, and
in which order. That the real library behaves like the played one is not shown here."""
import os
import sys
import types

import pytest

import fake_torch
import tidepool.huggingface
import tidepool.lightning
import tidepool.torch

NOTICE = {"notice": 3, "deadline_s": 29.5, "deadline_boottime_ns": 1, "devices": ["cpu:0-3"],
          "ranks": [0], "reason": "load", "asked": "save and give back"}


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.setattr(fake_torch, "distributed", fake_torch.Distributed())
    monkeypatch.setattr(fake_torch.Storage, "used", 0)
    monkeypatch.setattr(fake_torch.Storage, "limit", 10 ** 9)
    return fake_torch


# ---- moving ----------------------------------------------------------------------------------


def test_device_memory_is_freed_and_comes_back_as_it_was(torch):
    model, optimizer = torch.Module(), torch.Optimizer()
    before = torch.Storage.used
    offload = tidepool.torch.Offload()
    moved = offload.take(tidepool.torch.device_tensors(model, optimizer))
    assert moved == before == len(b"weights!" + b"more" + b"gradient" + b"momentum")
    assert torch.Storage.used == 0
    assert bytes(model.host.storage_.data) == b"on host"
    offload.give_back()
    assert torch.Storage.used == before
    assert bytes(model.tensors[1].storage_.data) == b"weights!"
    assert model.tensors[0].storage_ is model.tensors[1].storage_  # still tied
    assert bytes(model.tensors[0].grad.storage_.data) == b"gradient"
    assert bytes(optimizer.state["p"]["momentum"].storage_.data) == b"momentum"
    offload.give_back()  # once more moves nothing
    assert torch.Storage.used == before


def test_what_does_not_fit_any_more_may_be_tried_again(torch):
    model = torch.Module()
    before = torch.Storage.used
    offload = tidepool.torch.Offload()
    offload.take(tidepool.torch.device_tensors(model))
    torch.Storage.limit = before - 1
    with pytest.raises(RuntimeError, match="out of memory"):
        offload.give_back()
    torch.Storage.limit = before
    offload.give_back()
    assert bytes(model.tensors[0].storage_.data) == b"weights!"
    assert bytes(model.tensors[2].storage_.data) == b"more"


def test_without_pinned_memory_it_moves_all_the_same(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "pinned_max", 4)
    model = torch.Module()
    offload = tidepool.torch.Offload()
    offload.take(tidepool.torch.device_tensors(model))
    offload.give_back()
    assert bytes(model.tensors[0].storage_.data) == b"weights!"


# ---- agreeing --------------------------------------------------------------------------------


def test_one_process_agrees_with_itself(torch):
    assert tidepool.torch.Agreement().any(True) and not tidepool.torch.Agreement().any(False)
    assert torch.distributed.calls == 0


@pytest.mark.parametrize("backend, group, device", [
    ("nccl", "group of gloo", "cpu"), ("nccl only", None, "cuda"), ("gloo", "group of gloo", "cpu")])
def test_one_rank_that_says_yes_is_enough(torch, monkeypatch, backend, group, device):
    monkeypatch.setattr(torch, "distributed", torch.Distributed(4, backend))
    agreement = tidepool.torch.Agreement()
    assert not agreement.any(False)
    torch.distributed.others = 1
    assert agreement.any(False)
    assert (torch.distributed.last_group, torch.distributed.last_device) == (group, device)


# ---- the run ---------------------------------------------------------------------------------


def test_a_pause_moves_everything_off_the_device(attach, torch, trainer, until):
    run, peer = attach()
    model, optimizer = torch.Module(), torch.Optimizer()
    before = torch.Storage.used
    steps = trainer(run, tidepool.torch.attach(model, optimizer, run=run).step)
    steps.go(2)
    steps.wait(2)
    peer.say(pause={"request": 7, "step": 3})
    until(run.should_pause)
    steps.go(1)
    assert peer.hear("stopped") == {"request": 7, "step": 3}
    assert torch.Storage.used == 0  # by the time that it says so
    peer.say(resume={"request": 8})
    peer.hear("resumed")
    assert torch.Storage.used == before
    steps.wait(3)


def test_a_notice_saves_acknowledges_and_ends_the_script(attach, torch, tmp_path, until):
    run, peer = attach()
    path = tmp_path / "digits.pt"
    model, optimizer = torch.Module(), torch.Optimizer()
    first = tidepool.torch.attach(model, optimizer, path, run=run, rate=7)
    assert first.step(loss=0.5) == 1
    model.state, optimizer.rate = 17, 0.3
    torch.random_state[0] = 99
    first.epoch = 2
    peer.say(notice=NOTICE)
    until(run.should_stop)
    with pytest.raises(SystemExit) as ended:
        first.step()
    assert ended.value.code == 0
    assert peer.hear_until("progress", checkpointed_step=2)["step"] == 2
    assert peer.hear("acknowledged") == {"notice": 3}
    torch.random_state[0] = 0
    model, optimizer = torch.Module(), torch.Optimizer()
    again = tidepool.torch.attach(model, optimizer, path, run=attach()[0])
    assert (again.steps_done, again.epoch, again.epoch_step) == (2, 2, 2)
    assert (model.state, optimizer.rate, torch.random_state[0]) == (17, 0.3, 99)


def test_steps_passes_over_what_is_done_of_the_epoch(attach, tmp_path):
    path = tmp_path / "c.pt"
    run = tidepool.torch.attach(checkpoint=path, run=attach()[0])
    for number, batch in enumerate(run.steps("abcde")):
        run.step()
        if number == 1:
            run.save()
            break
    again = tidepool.torch.attach(checkpoint=path, run=attach()[0])
    seen = []
    for batch in again.steps("abcde"):
        seen.append(batch)
        again.step()
    assert seen == ["c", "d", "e"] and again.steps_done == 5
    assert (again.epoch, again.epoch_step) == (1, 0)
    assert list(again.steps("fg")) == ["f", "g"]


def test_several_ranks_end_after_the_same_step(attach, torch, monkeypatch, tmp_path, until):
    monkeypatch.setattr(torch, "distributed", torch.Distributed(2, "nccl"))
    run, peer = attach(1, 2)
    path = tmp_path / "c.pt"
    both = tidepool.torch.attach(checkpoint=path, run=run, agree_every=5)
    both.step()
    torch.distributed.others = 1  # the other rank has its notice already
    for _ in range(3):
        both.step()
    with pytest.raises(SystemExit):
        both.step()
    assert both.steps_done == 5 and torch.distributed.calls == 1
    assert torch.distributed.barriers == 1
    assert not path.exists()  # that is rank 0's to write


def test_outside_tidepool_only_the_checkpoint_is_left(torch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "distributed", torch.Distributed(2))
    path = tmp_path / "c.pt"
    run = tidepool.torch.attach(checkpoint=path, run=tidepool.Run())
    for _ in range(30):
        run.step()
    assert torch.distributed.calls == 0 and not path.exists()
    run.save()
    assert tidepool.torch.attach(checkpoint=path, run=tidepool.Run()).steps_done == 30


# ---- Hugging Face, Lightning ---------------------------------------------------------------------


class Base:
    """Every event of the library's own callback does nothing."""
    said = None

    def on_epoch_end(self, *_, **__):
        self.said = "base"


def test_the_trainer_saves_and_stops_at_a_notice(attach, torch, until):
    run, peer = attach()
    callback = tidepool.huggingface.callback(run, base=Base)
    assert isinstance(callback, Base)
    callback.on_epoch_end()
    assert callback.said == "base"
    state = types.SimpleNamespace(global_step=10, log_history=[{"loss": 0.5, "epoch": 1}])
    control = types.SimpleNamespace(should_save=False, should_training_stop=False)
    model = torch.Module()
    callback.on_train_begin(None, state, control, model=model, optimizer=torch.Optimizer(), tokenizer=1)
    state.global_step = 11
    callback.on_step_end(None, state, control)
    assert not control.should_save
    progress = peer.hear_until("progress", step=11)
    assert progress["metrics"] == {"loss": 0.5}
    peer.say(notice=NOTICE)
    until(run.should_stop)
    state.global_step = 12
    callback.on_step_end(None, state, control)
    assert control.should_save and control.should_training_stop
    callback.on_save(None, state, control)
    assert peer.hear_until("progress", checkpointed_step=12)
    assert peer.hear("acknowledged") == {"notice": 3}
    callback.on_train_end(None, state, control)


def test_lightning_saves_whole_and_stops_at_a_notice(attach, torch, tmp_path, until):
    run, peer = attach()
    path = tmp_path / "run.ckpt"
    path.write_text("old")
    callback = tidepool.lightning.callback(path, run, base=Base)

    class Trainer:
        global_step, should_stop, optimizers = 0, False, [torch.Optimizer()]

        def save_checkpoint(self, name):
            assert path.read_text() == "old"  # until the new one is whole
            with open(name, "w", encoding="utf-8") as file:
                file.write("new")
    trainer = Trainer()
    callback.on_train_start(trainer, torch.Module())
    trainer.global_step = 1
    callback.on_train_batch_end(trainer, None, None, None, 0)
    assert not trainer.should_stop
    peer.say(notice=NOTICE)
    until(run.should_stop)
    trainer.global_step = 2
    callback.on_train_batch_end(trainer, None, None, None, 1)
    assert trainer.should_stop and path.read_text() == "new"
    assert os.listdir(tmp_path).count("run.ckpt") == 1
    assert peer.hear_until("progress", checkpointed_step=2)
    assert peer.hear("acknowledged") == {"notice": 3}
    callback.on_train_end(trainer, None)


@pytest.mark.parametrize("make", [lambda run: tidepool.huggingface.callback(run, base=Base),
                                  lambda run: tidepool.lightning.callback("x", run, base=Base)])
def test_outside_tidepool_the_callbacks_do_nothing(make):
    callback = make(tidepool.Run())
    trainer = types.SimpleNamespace(global_step=1)
    for name in ("on_train_begin", "on_step_end", "on_train_start", "on_train_batch_end"):
        if hasattr(callback, name):
            getattr(callback, name)(*([trainer] * (3 if "step" in name or "begin" in name else 2)))


def test_a_library_that_is_not_there_is_named():
    with pytest.raises(ImportError, match="transformers"):
        tidepool.huggingface.callback(tidepool.Run())
    with pytest.raises(ImportError, match="lightning"):
        tidepool.lightning.callback("x", tidepool.Run())
