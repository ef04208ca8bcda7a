"""Trains a small network on 1,797 handwritten digits with NumPy alone.

    python3 numpy_digits.py [--steps N] [--rate X] [--width N] [--out FILE]

As a job of Tidepool it reports its steps, stands still between two of them, and saves when devices are
asked for; started again, it goes on from there. Anywhere else the same script simply trains.
"""
import argparse
import os

import numpy as np

import tidepool


def digits():
    """Images as rows of 64 numbers from 0 to 1, and what they show."""
    from sklearn.datasets import load_digits
    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target


def batches(images, labels, steps, done, size=64):
    """The rest of `steps` batches; which rows are in which one depends on its number alone."""
    for step in range(done, steps):
        rows = np.random.default_rng(step).integers(0, len(images), size)
        yield images[rows], labels[rows]


def train_step(weights, images, labels, rate):
    """One step of gradient descent, in place; returns the loss."""
    hidden = np.maximum(images @ weights["first"], 0)
    logits = hidden @ weights["second"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels] + 1e-9).mean()
    shares[rows, labels] -= 1
    shares /= len(labels)
    back = (shares @ weights["second"].T) * (hidden > 0)
    weights["second"] -= rate * hidden.T @ shares
    weights["first"] -= rate * images.T @ back
    return float(loss)


def save(path, step, weights):
    with tidepool.atomic_file(path) as file:
        np.savez(file, step=step, **weights)


def load(path, width):
    """(steps done, weights): of the file, or new ones."""
    if os.path.exists(path):
        with np.load(path) as saved:
            return int(saved["step"]), {name: saved[name] for name in ("first", "second")}
    random = np.random.default_rng(0)
    return 0, {"first": random.normal(0, 0.15, (64, width)).astype(np.float32),
               "second": random.normal(0, 0.15, (width, 10)).astype(np.float32)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--out", default="numpy_digits.npz")
    options = parser.parse_args()
    images, labels = digits()
    step, weights = load(options.out, options.width)
    loss = float("nan")
    run = tidepool.attach()
    run.report(step=step, checkpointed_step=step)
    for x, y in run.steps(batches(images, labels, options.steps, step), start=step):
        loss = train_step(weights, x, y, options.rate)
        step += 1
        if step % 1000 == 0:
            run.report(loss=loss)
        if run.should_stop():
            save(options.out, step, weights)
            run.report(step=step, checkpointed_step=step)
            run.acknowledge()
            print("asked for the device: saved at step %d" % step)
            return
    save(options.out, step, weights)
    hidden = np.maximum(images @ weights["first"], 0)
    right = (np.argmax(hidden @ weights["second"], 1) == labels).mean()
    print("step %d  loss %.4f  right %.1f %%" % (step, loss, 100 * right))


if __name__ == "__main__":
    main()
