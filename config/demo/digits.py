#!/usr/bin/env python3
"""Writes the handwritten digits of scikit-learn (1,797 images of 8 x 8) for the demo and the tests.

usage: digits.py DIRECTORY
  DIRECTORY/digits.npy         1797 x 64 float32, 0 to 16
  DIRECTORY/digits_labels.npy  1797 int64, 0 to 9
"""
import os
import sys

import numpy
from sklearn.datasets import load_digits


def save(path, array):
    """A reader never sees half a file."""
    with open(path + ".tmp", "wb") as file:
        numpy.save(file, array)
    os.replace(path + ".tmp", path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    digits = load_digits()
    save(os.path.join(directory, "digits.npy"), digits.data.astype(numpy.float32))
    save(os.path.join(directory, "digits_labels.npy"), digits.target.astype(numpy.int64))


if __name__ == "__main__":
    main()
