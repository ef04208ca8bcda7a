"""Writes the handwritten digits (scikit-learn's copy, 1,797 images of 8 x 8 pixels) as the two files
that `make run` trains on: digits.npy (float32, 0 to 1) and labels.npy. Usage: prepare.py FOLDER"""
import os
import sys

import numpy as np
from sklearn.datasets import load_digits

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
digits = load_digits()
np.save(os.path.join(folder, "labels.npy"), digits.target.astype(np.int64))
np.save(os.path.join(folder, "digits.npy"), (digits.data / 16).astype(np.float32))
print("wrote %d images to %s" % (len(digits.data), folder))
